"""Every method trains one small model for thirty steps on each device there is, and its invariants hold at every step.

Torch and numpy are enough to run it where pytest is not installed:

    python tests/train/test_controller_every_method_on_a_device.py --device cuda
"""

import argparse
import copy
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import acf
from acf.gradients import RULES, tracking
from acf.masks import nm_mask
from acf.nn import BlockSparseLayer, NMLayer, block_sparse_layers
from acf.sparse import BlockTopology
from acf.train import TopologyController

STEPS, EVERY = 30, 5
TIMES: dict[str, Any] = {"total_steps": STEPS, "every": EVERY, "stop_at": 1.0, "schedule": "constant"}
BLOCKS = acf.BlockSparsity(0.75, block=16)
DENSE_START = acf.BlockSparsity(0.75, block=16, init="dense")
MOVES = acf.BlockDST(**TIMES)


@dataclass(frozen=True)
class Scenario:
    """What to ask of the model, who moves its blocks, and how the step is taken."""

    specs: tuple[Any, ...] = (BLOCKS,)
    policy: Any = None
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    scaled: bool = False
    clipped: bool = False
    compiled: bool = False
    recomputed: bool = False
    passes: int = 1
    learning_rate: float = 3e-3
    optimizer: Callable[..., torch.optim.Optimizer] = field(default=torch.optim.AdamW)


SCENARIOS = {
    "block DST": Scenario(policy=MOVES),
    "block DST from a dense start": Scenario((DENSE_START,), MOVES),
    "block DST, blocks of 32": Scenario((acf.BlockSparsity(0.75, block=32),), MOVES),
    "block DST, blocks of 8 x 16": Scenario((acf.BlockSparsity(0.75, block=(8, 16)),), MOVES),
    "block DST, a sample of candidates": Scenario(policy=acf.BlockDST(**TIMES, candidates=0.5)),
    "block DST, input-aware": Scenario(policy=acf.BlockDST(**TIMES, score="input_aware")),
    "block DST, Erdos-Renyi": Scenario((acf.BlockSparsity(0.75, block=16, distribution="erk"),), MOVES),
    "block DST, balanced": Scenario((acf.BlockSparsity(0.75, block=16, distribution="balanced"),), MOVES),
    "SET": Scenario(policy=acf.SET(**TIMES)),
    "static": Scenario(policy=acf.StaticTopology()),
    "gradual pruning": Scenario((DENSE_START,), acf.GradualPruning(total_steps=STEPS, every=EVERY, stop_at=1.0)),
    "unstructured": Scenario((acf.BlockSparsity(0.75, block=1),), MOVES),
    **{f"N:M, {method}": Scenario((acf.NMSparsity(2, 4, method),)) for method in ("bdwp", "sr-ste", "sdgp")},
    "N:M, 2:16": Scenario((acf.NMSparsity(2, 16),)),
    **{f"gradients, {method}": Scenario((acf.GradientSparsity(0.5, method),)) for method in RULES},
    "block DST and DTS": Scenario((BLOCKS, acf.GradientSparsity(0.5)), MOVES),
    "BDWP and DTS": Scenario((acf.NMSparsity(2, 4), acf.GradientSparsity(0.5))),
    "bfloat16 autocast": Scenario(policy=MOVES, autocast=torch.bfloat16),
    "bfloat16 weights": Scenario(policy=MOVES, dtype=torch.bfloat16),
    "float16 with a loss scaler": Scenario(policy=MOVES, autocast=torch.float16, scaled=True),
    "BDWP and DTS in float16": Scenario(
        (acf.NMSparsity(2, 4), acf.GradientSparsity(0.5)), autocast=torch.float16, scaled=True
    ),
    "clipped": Scenario(policy=MOVES, clipped=True),
    "accumulated over two passes": Scenario(policy=MOVES, passes=2),
    "recomputed activations": Scenario(policy=MOVES, recomputed=True),
    "compiled": Scenario(policy=MOVES, compiled=True),
    "compiled, BDWP and DTS": Scenario((acf.NMSparsity(2, 4), acf.GradientSparsity(0.5)), compiled=True),
    "SGD with momentum": Scenario(policy=MOVES, optimizer=partial(torch.optim.SGD, momentum=0.9), learning_rate=1.0),
    "RMSprop": Scenario(policy=MOVES, optimizer=torch.optim.RMSprop, learning_rate=2e-3),
}


class Run:
    """One model in training on one device; the batch is the same at every step."""

    def __init__(self, scenario: Scenario, device: str, seed: int = 0) -> None:
        self.scenario, self.device = scenario, device
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(16, 32, 3, padding=1),
            nn.Tanh(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(64 * 16, 64),
            nn.Tanh(),
            nn.Linear(64, 32),
        )
        for spec in scenario.specs:
            acf.sparsify_(model, spec)
        self.model = model.to(device, scenario.dtype)
        self.optimizer = scenario.optimizer(self.model.parameters(), lr=scenario.learning_rate)
        self.controller: TopologyController | None = None
        if scenario.policy is not None:
            self.controller = acf.attach(self.model, self.optimizer, scenario.policy)
        self.scaler = torch.amp.GradScaler(device.split(":")[0], init_scale=2.0**10, enabled=scenario.scaled)
        self.counter = CompileCounterWithBackend("inductor" if "cuda" in device else "aot_eager")
        self.forward = self._forward()
        generator = torch.Generator().manual_seed(7)
        examples = 16 if scenario.autocast == torch.float16 and device == "cpu" else 32  # CPUs emulate float16
        self.x = torch.randn(examples, 16, 8, 8, generator=generator).to(device, scenario.dtype)
        self.target = torch.randn(examples, 32, generator=generator).to(device)

    def _forward(self) -> Callable[[Tensor], Tensor]:
        if self.scenario.compiled:
            torch._dynamo.reset()
            return torch.compile(self.model, backend=self.counter, fullgraph=True)
        if self.scenario.recomputed:
            return lambda x: checkpoint(self.model, x, use_reentrant=False)
        return self.model

    def step(self, overflows: bool = False) -> float:
        self.optimizer.zero_grad()
        total = 0.0
        for x, target in zip(self.x.chunk(self.scenario.passes), self.target.chunk(self.scenario.passes), strict=True):
            low = self.scenario.autocast
            with torch.autocast(self.device.split(":")[0], dtype=low or torch.bfloat16, enabled=low is not None):
                loss = nn.functional.mse_loss(self.forward(x).float(), target) / self.scenario.passes
            self.scaler.scale(loss * (torch.inf if overflows else 1.0)).backward()
            total += loss.item()
        if self.scenario.clipped:
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return total


def train(scenario: Scenario, device: str) -> None:
    """Thirty steps with everything checked after each, and what the whole run must have done."""
    run = Run(scenario, device)
    losses, achieved = [], []
    for step in range(STEPS):
        if scenario.scaled and step == EVERY - 1:
            before = copy.deepcopy(run.model.state_dict())
            run.step(overflows=True)  # in the step that was to move blocks
            assert_same_state(run.model, before)
        places = {name: positions(layer) for name, layer in block_sparse_layers(run.model).items()}
        losses.append(run.step())
        check_blocks(run, places)
        check_groups(run)
        achieved.append([figure.sparsity for figure in tracking(run.model).values()])
    assert losses[-1] < 0.9 * losses[0], f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}"
    assert all(value.isfinite().all() for value in run.model.state_dict().values())
    check_gradients(run, achieved)
    check_changes(run)
    check_dense_twin(run)
    assert not scenario.compiled or run.counter.frame_count == 1, f"compiled {run.counter.frame_count} times"


def positions(layer: BlockSparseLayer) -> tuple[Tensor, Tensor]:
    return layer.block_rows.clone(), layer.block_cols.clone()


def check_blocks(run: Run, places: dict[str, tuple[Tensor, Tensor]]) -> None:
    """Sparsity, indices, balance, and that regrown blocks start from nothing."""
    gradually = isinstance(run.scenario.policy, acf.GradualPruning)
    for name, layer in block_sparse_layers(run.model).items():
        started = run.controller is None or run.controller.step >= EVERY
        if started and not gradually:
            assert layer.present_blocks == layer.target_blocks
        assert int(layer.mask().sum()) == layer.present_blocks == layer.block_rows.numel()
        rebuilt = BlockTopology.build(layer.layout, layer.block_rows, layer.block_cols)
        assert all(torch.equal(mine, other) for mine, other in zip(layer.topology, rebuilt, strict=True))
        if layer.balanced:
            in_rows = layer.mask().sum(dim=1)
            assert int(in_rows.max() - in_rows.min()) <= 1
        rows, cols = places[name]
        if rows.shape != layer.block_rows.shape:
            continue  # it has just shrunk
        regrown = (rows != layer.block_rows) | (cols != layer.block_cols)
        state = [value for value in run.optimizer.state[layer.weight].values() if value.shape == layer.weight.shape]
        assert state
        for packed in (layer.weight, layer.weight.grad, *state):
            assert not packed[regrown].any()
            assert packed[~regrown].any()


def check_groups(run: Run) -> None:
    for layer in run.model.modules():
        if isinstance(layer, NMLayer):
            n, m, dims = layer.spec.n, layer.spec.m, layer.spec.masks
            for mask, dim in zip(layer.masks(), (dims.forward_dim, dims.backward_dim), strict=True):
                if dim is not None:
                    assert torch.equal(mask, nm_mask(layer.weight.detach(), n, m, dim))
                    groups = mask.movedim(dim, -1).unflatten(-1, (-1, m)).sum(dim=-1)
                    assert bool((groups == n).all())


def check_gradients(run: Run, achieved: list[list[float]]) -> None:
    """The methods that look at this gradient, or follow it, hold their target."""
    specs = [spec for spec in run.scenario.specs if isinstance(spec, acf.GradientSparsity)]
    if specs and specs[0].method in ("dts", "top-k", "random"):
        settled = torch.tensor(achieved[-10:]).mean(dim=0)
        allowed = 0.1 if run.controller is None else 0.2  # gradients jump when blocks move, thresholds follow by 20 %
        assert (settled - specs[0].target).abs().max() < allowed, settled
        assert all(figure.step >= STEPS for figure in tracking(run.model).values())


def check_changes(run: Run) -> None:
    """Blocks moved, or went, in every layer and at the steps of the policy, or never."""
    if run.controller is None:
        return
    policy, changes = run.scenario.policy, run.controller.changes
    assert run.controller.step == STEPS
    if isinstance(policy, acf.StaticTopology):
        assert not changes
        return
    assert {change.step for change in changes} == set(range(EVERY, STEPS + 1, EVERY))
    assert {change.layer for change in changes} == set(block_sparse_layers(run.model))
    assert any(change.moved_blocks or change.pruned_blocks for change in changes)
    spec = run.scenario.specs[0]
    for layer in run.controller.layers.values():
        assert layer.present_blocks == layer.target_blocks
        assert spec.distribution == "erk" or abs(layer.density - (1.0 - spec.sparsity)) * layer.layout.block_count < 1.0


def check_dense_twin(run: Run) -> None:
    """The model computes what its dense twin does, and what it does on the CPU."""
    dense = acf.densify_(copy.deepcopy(run.model)).eval()
    elsewhere = copy.deepcopy(run.model).to("cpu").eval()
    tolerance = 3e-2 if run.scenario.dtype is torch.bfloat16 else 1e-2 if "cuda" in run.device else 1e-4  # TF32 there
    with torch.no_grad():
        y = run.model.eval()(run.x).float()
        for other in (dense(run.x).float(), elsewhere(run.x.cpu()).float().to(run.device)):
            assert (y - other).norm() <= tolerance * other.norm()


def assert_same_state(model: nn.Module, state: dict[str, Tensor]) -> None:
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name


def resume(device: str) -> None:
    """Fifteen steps, a file, another model, fifteen more: as without the file."""
    scenario = Scenario((BLOCKS, acf.GradientSparsity(0.5)), acf.BlockDST(**TIMES, score="input_aware"))
    whole, resumed = Run(scenario, device), Run(scenario, device, seed=1)
    for _ in range(STEPS // 2):
        whole.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.pt"
        acf.save_checkpoint(path, model=whole.model, optimizer=whole.optimizer, topology=whole.controller)
        acf.load_checkpoint(path, model=resumed.model, optimizer=resumed.optimizer, topology=resumed.controller)
    assert_same_state(resumed.model, whole.model.state_dict())
    losses = [(whole.step(), resumed.step()) for _ in range(STEPS - STEPS // 2)]
    assert all(abs(mine - other) <= 0.02 * mine for mine, other in losses), losses
    if "cuda" not in device:  # there sums may be taken in any order
        assert_same_state(resumed.model, whole.model.state_dict())


CHECKS: dict[str, Callable[[str], None]] = {
    **{name: lambda device, scenario=scenario: train(scenario, device) for name, scenario in SCENARIOS.items()},
    "resumed from a file": resume,
}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def pytest_generate_tests(metafunc: Any) -> None:
    metafunc.parametrize("device", DEVICES)
    metafunc.parametrize("name", CHECKS)


def test_the_invariants_of_every_method_hold_at_every_step(name: str, device: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", ".*should not be instantiated", DeprecationWarning
        )  # the compiler's own doing
        CHECKS[name](device)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=DEVICES[-1])
    parser.add_argument("--only", default="", help="names that contain this")
    options = parser.parse_args()
    failed = 0
    for name, check in CHECKS.items():
        if options.only not in name:
            continue
        start = time.perf_counter()
        try:
            check(options.device)
            said = "ok"
        except Exception:
            failed, said = failed + 1, "FAILED\n" + traceback.format_exc()
        print(f"{time.perf_counter() - start:6.1f} s  {name}: {said}", flush=True)
    print(f"{failed} of {len(CHECKS)} failed on {options.device}, torch {torch.__version__}")
    return min(1, failed)


if __name__ == "__main__":
    sys.exit(main())
