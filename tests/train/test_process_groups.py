"""Every policy in two processes with different data: one topology, one set of weights, or a clear refusal.

All scenarios share one pair of processes, because starting them takes longer than training.
"""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from acf.errors import AcfError
from acf.masks import SET, BlockDST, GradualPruning
from acf.nn import BlockSparsity, block_sparse_layers, sparsify_
from acf.sparse import whole
from acf.train import TopologyController, attach

WORLD_SIZE = 2
STEPS = 12
TIMES = {"total_steps": STEPS, "every": 3, "stop_at": 1.0, "schedule": "constant"}  # the last step moves blocks too
DENSE_START = BlockSparsity(0.7, block=4, init="dense")


def plain(model: nn.Module) -> nn.Module:
    return model


def sharded(model: nn.Module) -> nn.Module:
    fully_shard(model[0])
    return fully_shard(model)


def sparse_model(spec: BlockSparsity) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 12))
    sparsify_(model, spec)
    return model


def train(rank: int, wrap: Callable[..., nn.Module], policy, spec: BlockSparsity) -> dict[str, Any]:
    """Train with data of this rank's own; what came out, gathered from all shards."""
    model = sparse_model(spec)
    wrapped = wrap(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=0.01)
    controller = attach(wrapped, optimizer, policy)
    generator = torch.Generator().manual_seed(100 + rank)
    regrown = {}
    for _ in range(STEPS):
        before = {name: (layer.block_rows.clone(), layer.block_cols.clone()) for name, layer in layers(model).items()}
        x = torch.randn(8, 16, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(wrapped(x), (1.0 + rank) * x.flip(1)[:, :12]).backward()
        if wrap is plain:
            average_gradients(model)
        optimizer.step()
        regrown = {name: moved_slots(layer, *before[name]) for name, layer in layers(model).items()}
    return {
        "model": {name: whole(value).clone() for name, value in model.state_dict().items()},
        "derived": {name: list(layer.topology) for name, layer in layers(model).items()},
        "moments": {name: whole(optimizer.state[layer.weight]["exp_avg"]) for name, layer in layers(model).items()},
        "regrown": regrown,
        "moved": [change.moved_blocks for change in controller.changes],
        "inputs": gathered(controller),
        "initial": sparse_model(spec).state_dict(),
    }


def layers(model: nn.Module) -> dict[str, Any]:
    return block_sparse_layers(model)


def moved_slots(layer: Any, rows: Tensor, cols: Tensor) -> Tensor:
    """Bool ``[nnz]``: the slots that hold another block than before; none where the layer shrank."""
    if rows.shape != layer.block_rows.shape:
        return torch.zeros(layer.present_blocks, dtype=torch.bool)
    return (layer.block_rows != rows) | (layer.block_cols != cols)


def gathered(controller: TopologyController) -> list[Tensor]:
    saved = [layer["input_squares"] for layer in controller.state_dict()["layers"].values()]
    return [value for value in saved if value is not None]


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        torch.distributed.all_reduce(parameter.grad)
        parameter.grad /= WORLD_SIZE


SCENARIOS: dict[str, tuple[Callable[..., nn.Module], Any, BlockSparsity]] = {
    "DDP, Algorithm 1": (DistributedDataParallel, BlockDST(**TIMES), BlockSparsity(0.7, block=4)),
    "FSDP, Algorithm 1": (sharded, BlockDST(**TIMES), BlockSparsity(0.7, block=4)),
    "DDP, SET": (DistributedDataParallel, SET(**TIMES), BlockSparsity(0.7, block=4)),
    "FSDP, SET": (sharded, SET(**TIMES), BlockSparsity(0.7, block=4)),
    "DDP, sampled candidates, balanced": (
        DistributedDataParallel,
        BlockDST(**TIMES, candidates=0.5),
        BlockSparsity(0.7, block=4, distribution="balanced"),
    ),
    "DDP, input-aware": (DistributedDataParallel, BlockDST(**TIMES, score="input_aware"), BlockSparsity(0.7, block=4)),
    "FSDP, input-aware": (sharded, BlockDST(**TIMES, score="input_aware"), BlockSparsity(0.7, block=4)),
    "own reduction, dense start": (plain, BlockDST(**TIMES), DENSE_START),
    "own reduction, gradual pruning": (plain, GradualPruning(total_steps=STEPS, every=3, stop_at=1.0), DENSE_START),
}
REFUSED = {"DDP": DistributedDataParallel, "FSDP": sharded}


def refusal(rank: int, wrap: Callable[..., nn.Module]) -> str:
    try:
        train(rank, wrap, BlockDST(**TIMES), DENSE_START)
    except AcfError as error:
        return str(error)
    return ""


def late_refusal() -> str:
    """Wrapped between attaching and shrinking."""
    model = sparse_model(DENSE_START)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    attach(model, optimizer, BlockDST(total_steps=9, every=1))
    wrapped = DistributedDataParallel(model)
    wrapped(torch.randn(4, 16)).square().mean().backward()
    try:
        optimizer.step()
    except AcfError as error:
        return str(error)
    return ""


def work(rank: int, folder: str) -> None:
    """The body of one process."""
    torch.set_num_threads(1)
    rendezvous = (Path(folder) / "rendezvous").as_uri()
    torch.distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=WORLD_SIZE)
    outcome: dict[str, Any] = {name: train(rank, *scenario) for name, scenario in SCENARIOS.items()}
    outcome["refusals"] = {name: refusal(rank, wrap) for name, wrap in REFUSED.items()}
    outcome["late refusal"] = late_refusal()
    torch.save(outcome, Path(folder) / f"rank{rank}.pt")
    gc.collect()  # the wrappers must be gone before their process group is
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        torch.multiprocessing.spawn(work, args=(str(folder),), nprocs=WORLD_SIZE)
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(WORLD_SIZE)]


def flat(value: object) -> list[object]:
    """The leaves of nested dicts and lists, in order."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if children is None else [leaf for child in children for leaf in flat(child)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_ranks_with_different_data_end_with_the_same_of_everything(ranks, name):
    first, second = (rank[name] for rank in ranks)
    for mine, other in zip(flat(first), flat(second), strict=True):
        assert torch.equal(torch.as_tensor(mine), torch.as_tensor(other))
    assert not torch.equal(first["model"]["0.block_cols"], first["initial"]["0.block_cols"])
    assert all(value.isfinite().all() for value in first["model"].values())
    assert bool(first["inputs"]) is ("input-aware" in name)


@pytest.mark.parametrize("method", ["Algorithm 1", "SET", "input-aware"])
def test_sharded_training_is_replicated_training(ranks, method):
    replicated, shards = ranks[0][f"DDP, {method}"], ranks[0][f"FSDP, {method}"]
    assert sum(shards["moved"]) > 0
    assert shards["moved"] == replicated["moved"]
    for name, value in replicated["model"].items():
        torch.testing.assert_close(shards["model"][name], value)


@pytest.mark.parametrize("wrapper", ["DDP", "FSDP"])
def test_regrown_blocks_have_neither_weights_nor_moments(ranks, wrapper):
    outcome = ranks[0][f"{wrapper}, Algorithm 1"]
    for name, regrown in outcome["regrown"].items():
        assert not outcome["moments"][name][regrown].any()
        assert not outcome["model"][f"{name}.weight"][regrown].any()
        assert regrown.any()
        assert outcome["moments"][name][~regrown].any()


@pytest.mark.parametrize(("name", "wrapper"), [("DDP", "DistributedDataParallel"), ("FSDP", "FSDP")])
def test_a_wrapper_that_fixes_shapes_is_refused_where_parameters_must_shrink(ranks, name, wrapper):
    expected = f"0 must shrink from 32 to 10 blocks, and {wrapper} holds its weight at a fixed shape; use init="
    assert all(expected in rank["refusals"][name] for rank in ranks)


def test_a_model_that_is_wrapped_before_it_has_shrunk_is_refused_when_it_should(ranks):
    assert all("DistributedDataParallel holds its weight at a fixed shape" in rank["late refusal"] for rank in ranks)
