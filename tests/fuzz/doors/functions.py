"""Public Python functions and settings with values that are wrong in kind, size or content."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import nn

import acf
from acf import runtime
from acf.masks import SET, GradualPruning, StaticTopology
from acf.nn.plan import PlannedLayer
from acf.ops import MlpLayer, block_conv2d, block_experts, block_gated_mlp, block_linear, block_mlp
from acf.ops.geometry import Conv2dGeometry
from acf.ops.linear import block_gradient_norms
from acf.sim.dram import MEMORIES, dram_spec
from acf.sim.mesh import MeshSpec
from acf.sparse import BlockLayout, BlockTopology
from acf.sparse.nm import nm_mask
from acf.sparse.relative_csc import encode_columns
from acf.sparse.transposable import transposable_mask
from acf.trace.op import TracedConv
from acf.train.ema import ema
from tests.fuzz.doors.traces import compile_loops, small_step
from tests.fuzz.values import plain, strange, strange_array, strange_tensor

SETTINGS: tuple[Callable[[Any], object], ...] = (
    acf.BlockSparsity,
    lambda value: acf.sparsify_(nn.Sequential(nn.Linear(16, 16)), acf.BlockSparsity(0.5, block=value)),
    lambda value: acf.BlockSparsity(0.5, distribution=value),
    lambda value: acf.BlockSparsity(0.5, init=value),
    lambda value: acf.NMSparsity(n=value, m=4),
    lambda value: acf.NMSparsity(n=2, m=value),
    lambda value: acf.NMSparsity(n=2, m=4, decay=value),
    lambda value: acf.NMSparsity(n=2, m=4, method=value),
    lambda value: acf.GradientSparsity(target=value),
    lambda value: acf.GradientSparsity(target=0.5, method=value),
    lambda value: acf.BlockDST(total_steps=value),
    lambda value: acf.BlockDST(total_steps=100, every=value),
    lambda value: acf.BlockDST(total_steps=100, every=10, fraction=value),
    lambda value: acf.BlockDST(total_steps=100, every=10, candidates=value),
    lambda value: acf.BlockDST(total_steps=100, every=10, stop_at=value),
    lambda value: SET(total_steps=100, every=10, start_at=value),
    lambda value: SET(total_steps=100, every=10, seed=value),
    lambda value: GradualPruning(total_steps=100, every=value),
    lambda value: TracedConv(kernel_size=(value, 3), input_size=(8, 8)),
    lambda value: TracedConv(kernel_size=(3, 3), input_size=(8, 8), padding=(0, value)),
    lambda value: acf.spec("acf-512", mesh_columns=value),
    lambda value: acf.spec("acf-512", clock_hz=value),
    lambda value: acf.spec("tensordash", name=value),
    lambda value: MeshSpec(columns=value),
    lambda value: MeshSpec(flit_bytes=value),
    lambda value: dram_spec("hbm2", value),
    lambda value: replace(MEMORIES["hbm2"], bank_queue_depth=value),
    lambda value: acf.PlanOptions(checks=value),
    lambda value: acf.PlanOptions(blocks=(value,)),
    lambda value: acf.PlanOptions(blocks=value),
    lambda value: acf.PlanOptions(rounds=value),
    lambda value: acf.PlanOptions(family=value),
    lambda value: PlannedLayer("fc", value, 1.0, 1.0),
    lambda value: PlannedLayer("fc", 0.5, 1.0, 1.0, block=value),
    lambda value: runtime.WeightBlocks.dense(16, value),
    lambda value: acf.simulate(value, "tensorcore"),
    lambda value: acf.simulate(small_step(), value),
    lambda value: acf.Trace.load(value),
    lambda value: acf.report(value, "page.html"),
    lambda value: acf.report([value], "page.html"),
    lambda value: acf.report([], value),
    lambda value: acf.RunLog(value),
    lambda value: acf.RunLog("log", every=value),
    lambda value: acf.RunLog("log", total_steps=value),
    lambda value: acf.TopologyStore(value),
    lambda value: acf.TopologyStore("a.sqlite", run=value),
    lambda value: acf.EnergyMeter(value, idle_seconds=0.0),
    lambda value: acf.densify_(value),
    lambda value: acf.weight_sparsity(value),
    lambda value: acf.load_sparse(value),
    lambda value: acf.load_checkpoint(value),
    lambda value: acf.save_sparse(nn.Sequential(nn.Linear(4, 4)), value),
    lambda value: ema(_sparse(), decay=value),
    lambda value: acf.capture(value).__enter__(),
    lambda value: BlockLayout(value, 16, 8, 8),
    lambda value: BlockLayout(16, 16, value, 8),
    lambda value: GradualPruning(total_steps=value),
    lambda value: StaticTopology(value),
)
"""Settings and arguments of public names, as functions of one value."""


def settings(rng: Random, folder: Path) -> None:
    """A strange value in place of a setting."""
    compile_loops()
    with plain(TypeError, ValueError):
        rng.choice(SETTINGS)(strange(rng))


def _sparse() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=8))
    return model


@cache
def _topology() -> tuple[BlockTopology, torch.Tensor]:
    layout = BlockLayout(16, 16, 8, 8)
    topology = BlockTopology.from_mask(layout, torch.eye(2, dtype=torch.bool))
    return topology, torch.ones(2, 8, 8)


def _linear(rng: Random) -> None:
    topology, weight = _topology()
    arguments: list[Any] = [torch.ones(4, 16), weight, torch.ones(16)]
    place = rng.randrange(3)
    arguments[place] = strange_tensor(rng, arguments[place])
    block_linear(arguments[0], arguments[1], topology, arguments[2])


def _conv(rng: Random) -> None:
    geometry = Conv2dGeometry((3, 3), (1, 1), (1, 1), (1, 1))
    layout = BlockLayout(8, 72, 8, 8)
    topology = BlockTopology.from_mask(layout, torch.ones(1, 9, dtype=torch.bool))
    arguments: list[Any] = [torch.ones(2, 8, 5, 5), torch.ones(9, 8, 8), torch.ones(8)]
    place = rng.randrange(3)
    arguments[place] = strange_tensor(rng, arguments[place])
    block_conv2d(arguments[0], arguments[1], topology, geometry, arguments[2])


def _strange_layer(rng: Random) -> MlpLayer:
    """A layer with one operand, or one array of its topology, that is not what it should be."""
    topology, weight = _topology()
    layer = MlpLayer(weight.clone().requires_grad_(), topology, torch.ones(16, requires_grad=True))
    place = rng.choice(("weight", "bias", "topology"))
    if place != "topology":
        return layer._replace(**{place: strange_tensor(rng, getattr(layer, place).detach())})
    array = rng.choice(BlockTopology._fields)
    changed = strange_tensor(rng, getattr(topology, array))
    if torch.is_tensor(changed) and changed.dim() > 0:
        topology = topology._replace(**{array: changed})
    return layer._replace(topology=topology)


def _mlp(rng: Random) -> None:
    topology, weight = _topology()
    good = MlpLayer(weight.clone().requires_grad_(), topology, torch.ones(16, requires_grad=True))
    layers: list[Any] = [good, good, good]
    layers[rng.randrange(3)] = _strange_layer(rng) if rng.random() < 0.9 else strange(rng)
    x = torch.ones(4, 16) if rng.random() < 0.7 else strange_tensor(rng, torch.ones(4, 16))
    activation = rng.choice(("gelu", "silu", "relu", strange(rng)))
    y = block_mlp(x, *layers[:2], activation) if rng.random() < 0.5 else block_gated_mlp(x, *layers, activation)
    if y.requires_grad and not y.is_complex():
        y.sum().backward()


def _experts(rng: Random) -> None:
    topology = BlockTopology.from_mask(BlockLayout(16, 8, 8, 8, stacked=2), torch.ones(2, 1, dtype=torch.bool))
    arguments: list[Any] = [torch.ones(4, 8), torch.ones(2, 8, 8), topology, torch.tensor([0, 2, 4])]
    place = rng.choice((0, 1, 3))
    arguments[place] = strange_tensor(rng, arguments[place])
    block_experts(arguments[0], arguments[1], arguments[2], arguments[3])


def _norms(rng: Random) -> None:
    arguments: list[Any] = [torch.ones(4, 16), torch.ones(4, 16), torch.tensor([0, 1]), torch.tensor([0, 1])]
    place = rng.randrange(4)
    arguments[place] = strange_tensor(rng, arguments[place])
    block_gradient_norms(arguments[0], arguments[1], arguments[2], arguments[3], (8, 8))


def _forward(rng: Random) -> None:
    model: Any = _sparse() if rng.random() < 0.5 else _groups()
    output = model(strange_tensor(rng, torch.ones(4, 32)))
    if output.dtype.is_floating_point and output.requires_grad:
        output.sum().backward()


def _groups() -> nn.Module:
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
    acf.sparsify_(model, acf.NMSparsity(n=2, m=4))
    return model


def _attach(rng: Random) -> None:
    model = _sparse()
    arguments: list[Any] = [model, torch.optim.SGD(model.parameters(), lr=0.1), acf.BlockDST(total_steps=10, every=2)]
    arguments[rng.randrange(3)] = rng.choice((strange(rng), nn.Linear(4, 4), [], torch.optim.SGD([torch.ones(1)])))
    acf.attach(*arguments)


def _sparsify(rng: Random) -> None:
    models: tuple[Any, ...] = (
        nn.Linear(0, 4), nn.Sequential(), nn.Linear(8, 8, device="meta"), nn.Conv2d(8, 8, 3, groups=8), None,
        nn.Linear(32, 32).double(), nn.Sequential(nn.Linear(32, 32).half()), _sparse(), strange(rng),
    )  # fmt: skip
    specs: tuple[Any, ...] = (
        acf.BlockSparsity(0.5, block=8), acf.NMSparsity(n=2, m=4), acf.GradientSparsity(target=0.5), strange(rng)
    )  # fmt: skip
    filters: tuple[Any, ...] = (None, None, None, lambda module, name: True, lambda: True, strange(rng))
    acf.sparsify_(rng.choice(models), rng.choice(specs), filter_fn=rng.choice(filters))


def _capture(rng: Random) -> None:
    model = rng.choice((_sparse(), nn.Linear(32, 4)))
    with acf.capture(model) as trace:
        model(strange_tensor(rng, torch.ones(2, 32))).sum().backward()
    trace.save("captured.safetensors")
    acf.simulate(trace, "tensorcore")


def _matmul(rng: Random) -> None:
    sides: list[Any] = [np.ones((4, 4)), np.ones((4, 4))]
    sides[rng.randrange(2)] = strange_array(rng)
    phase = rng.choice(("forward", "input_grad", "weight_grad", strange(rng)))
    acf.simulate(acf.Trace.from_matmuls([acf.Matmul(rng.choice(("fc", strange(rng))), phase, *sides)]), "tensordash")


def _masks(rng: Random) -> None:
    weight = strange_tensor(rng, torch.ones(8, 8))
    rng.choice((
        lambda: nm_mask(weight, rng.choice((2, 0, -1, 9)), rng.choice((4, 0, 3)), rng.choice((0, 1, 5))),
        lambda: transposable_mask(weight, rng.choice((2, 0, 5)), rng.choice((4, 0, 3))),
        lambda: encode_columns(strange_array(rng), rng.choice((4, 0, -1, 70))),
        lambda: BlockTopology.from_mask(BlockLayout(16, 16, 8, 8), weight),
        lambda: BlockTopology.build(BlockLayout(16, 16, 8, 8), weight, torch.tensor([0])),
    ))()  # fmt: skip


def _offload(rng: Random) -> None:
    device = rng.choice((runtime.Device("sim", "acf-1"), strange(rng)))
    model: Any = rng.choice((nn.Linear(16, 16), strange(rng)))
    with acf.offload(model, device):
        model(strange_tensor(rng, torch.ones(2, 16)))


def _graphed(rng: Random) -> None:
    model = _sparse()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    topology = acf.attach(model, optimizer, acf.BlockDST(total_steps=10, every=2))
    arguments: list[Any] = [lambda x: model(x).sum(), optimizer, topology]
    if rng.random() < 0.5:
        arguments[rng.randrange(3)] = strange(rng)
    acf.GraphedStep(*arguments)(strange_tensor(rng, torch.ones(4, 32)))


def _warm_up(rng: Random) -> None:
    model = _sparse()
    step = rng.choice((lambda x: model(x).sum(), lambda x: model(x), strange(rng)))
    acf.warm_up(rng.choice((model, model, strange(rng))), step, strange_tensor(rng, torch.ones(2, 32)))


def _plan(rng: Random) -> None:
    model = nn.Sequential(nn.Linear(32, 32))
    spec = rng.choice((acf.BlockSparsity(0.5, block=8), strange(rng)))
    acf.plan(model, strange_tensor(rng, torch.ones(4, 32)), spec)


def _train(rng: Random) -> None:
    """Steps over a move with gradients and weights that are not finite, or all zero."""
    model = _sparse()
    optimizer = torch.optim.SGD(model.parameters(), lr=rng.choice((0.1, 0.0, 1e30)))
    policy = rng.choice((acf.BlockDST, SET))(total_steps=8, every=2)
    acf.attach(model, optimizer, policy)
    for _ in range(4):
        optimizer.zero_grad()
        x = torch.ones(4, 32) * rng.choice((1.0, 0.0, 1e-40, 1e30, float("nan"), float("inf")))
        model(x).sum().backward()
        optimizer.step()


FUNCTIONS: dict[str, Callable[[Random], None]] = {
    "block_linear": _linear,
    "block_conv2d": _conv,
    "block_gradient_norms": _norms,
    "block_mlp": _mlp,
    "block_experts": _experts,
    "forward": _forward,
    "attach": _attach,
    "sparsify_": _sparsify,
    "capture": _capture,
    "matmul": _matmul,
    "masks": _masks,
    "offload": _offload,
    "GraphedStep": _graphed,
    "warm_up": _warm_up,
    "plan": _plan,
    "train": _train,
}

"""Public functions by name, each called with something strange."""

WITH_OPERANDS = {
    "block_linear", "block_conv2d", "block_gradient_norms", "block_mlp", "block_experts", "forward", "capture",
    "masks", "offload", "GraphedStep", "warm_up", "plan",
}  # fmt: skip
"""Those that compute with tensors of the caller."""


def functions(rng: Random, folder: Path) -> None:
    """A public function with an operand, a model or a setting that is not what it takes.

    Operands of other sizes or types are refused by torch itself, as a dense layer refuses them: with a RuntimeError.
    """
    name = rng.choice(sorted(FUNCTIONS))
    try:
        with plain(TypeError, ValueError):
            FUNCTIONS[name](rng)
    except RuntimeError as error:
        if not str(error) or name not in WITH_OPERANDS:
            raise
