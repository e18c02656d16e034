"""Every policy in two processes with different data: one topology, one set of weights, or a clear refusal.

All scenarios share one pair of processes, because starting them takes longer than training.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from acf.errors import AcfError
from acf.masks import SET, BlockDST, GradualPruning
from acf.nn import BlockSparsity, block_sparse_layers, sparsify_
from acf.sparse import whole
from acf.train import TopologyController, attach, data_parallel
from tests.train.two_ranks import WORLD_SIZE, assert_same, fully_shard, outcomes_of_two_ranks

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
    "data_parallel, dense start": (data_parallel, BlockDST(**TIMES), DENSE_START),
    "data_parallel, shrinking on": (data_parallel, BlockDST(**TIMES, shrink_until=0.8), DENSE_START),
    "data_parallel, gradual pruning": (
        data_parallel,
        GradualPruning(total_steps=STEPS, every=3, stop_at=1.0),
        DENSE_START,
    ),
    "data_parallel, sparse start": (data_parallel, BlockDST(**TIMES), BlockSparsity(0.7, block=4)),
}
REFUSED = {"DDP": DistributedDataParallel}


def refusal(rank: int, wrap: Callable[..., nn.Module]) -> str:
    try:
        train(rank, wrap, BlockDST(**TIMES), DENSE_START)
    except AcfError as error:
        return str(error)
    return ""


def accumulated_gradients(rank: int) -> dict[str, list[Tensor]]:
    """Gradients of two passes, of which `data_parallel` averages the second alone, and their own on this rank."""
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(rank))
    own, model = sparse_model(DENSE_START), sparse_model(DENSE_START)
    if rank > 0:
        nn.init.zeros_(model[0].weight)  # which the wrapper must replace by those of rank 0
    wrapped = data_parallel(model)
    with wrapped.no_sync():
        wrapped(x).square().mean().backward()
    before = [parameter.grad.clone() for parameter in model.parameters()]
    wrapped(2 * x).square().mean().backward()
    for scale in (1, 2):
        own(scale * x).square().mean().backward()
    return {
        "before": before,
        "after": [parameter.grad for parameter in model.parameters()],
        "own": [parameter.grad for parameter in own.parameters()],
    }


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


def in_own_group(rank: int, wrap: Callable[..., nn.Module] | None) -> list[Tensor]:
    """The topology of a model that only this rank trains, in a group of its own; ``wrap=None``: without processes."""
    model = sparse_model(BlockSparsity(0.7, block=4))
    groups = [] if wrap is None else [torch.distributed.new_group([each]) for each in range(WORLD_SIZE)]
    own = groups[rank] if groups else None
    wrapped = model if wrap is None or wrap is plain else wrap(model, process_group=own)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    policy = BlockDST(**TIMES, score="input_aware")
    attach(wrapped, optimizer, policy, process_group=own if wrap is plain else None)
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        x = torch.randn(8, 16, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(wrapped(x), (1.0 + rank) * x.flip(1)[:, :12]).backward()
        optimizer.step()
    return [index for layer in layers(model).values() for index in (layer.block_rows, layer.block_cols)]


def with_sharded_optimizer(rank: int, init: str) -> dict[str, Any]:
    """Trained with ZeroRedundancyOptimizer, each of whose processes keeps the state of some parameters."""
    from torch.distributed.optim import ZeroRedundancyOptimizer  # importing it warns about torch's own code

    model = sparse_model(BlockSparsity(0.7, block=4, init=init))
    wrapped = data_parallel(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    controller = attach(wrapped, optimizer, BlockDST(**TIMES))
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        x = torch.randn(8, 16, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(wrapped(x), (1.0 + rank) * x.flip(1)[:, :12]).backward()
        optimizer.step()
    new = {name: ~layer.weight.flatten(1).any(1) for name, layer in layers(model).items()}
    kept = {name: optimizer.optim.state.get(layer.weight, {}) for name, layer in layers(model).items()}
    return {
        "model": dict(model.state_dict()),
        "steps": controller.step,
        "stale": [bool(state["exp_avg"][new[name]].any()) for name, state in kept.items() if state],
        "new": new,
    }


OWN_GROUP = {"given to attach": plain, "of data_parallel": data_parallel, "of DDP": DistributedDataParallel}


def work(rank: int, _: Path) -> dict[str, Any]:
    """Every scenario, one after another in one process."""
    outcome: dict[str, Any] = {name: train(rank, *scenario) for name, scenario in SCENARIOS.items()}
    outcome["refusals"] = {name: refusal(rank, wrap) for name, wrap in REFUSED.items()}
    outcome["late refusal"] = late_refusal()
    outcome["accumulated"] = accumulated_gradients(rank)
    outcome["own groups"] = {name: in_own_group(rank, wrap) for name, wrap in OWN_GROUP.items()}
    outcome["sharded optimizer"] = {init: with_sharded_optimizer(rank, init) for init in ("sparse", "dense")}
    return outcome


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return outcomes_of_two_ranks(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_ranks_with_different_data_end_with_the_same_of_everything(ranks, name):
    first, second = (rank[name] for rank in ranks)
    assert_same(first, second)
    assert not torch.equal(first["model"]["0.block_cols"], first["initial"]["0.block_cols"])
    assert all(value.isfinite().all() for value in first["model"].values())
    assert bool(first["inputs"]) is ("input-aware" in name)


@pytest.mark.parametrize("group", OWN_GROUP)
def test_processes_of_other_groups_have_no_part_in_a_move(ranks, group):
    for rank, outcome in enumerate(ranks):
        assert_same(outcome["own groups"][group], in_own_group(rank, None))


@pytest.mark.parametrize("init", ["sparse", "dense"])
def test_a_sharded_optimizer_forgets_the_state_of_new_blocks_where_it_is_kept(ranks, init):
    first, second = (rank["sharded optimizer"][init] for rank in ranks)
    assert_same(first["model"], second["model"])
    assert (first["steps"], second["steps"]) == (STEPS, STEPS)
    assert len(first["stale"]) + len(second["stale"]) == 2
    assert not any(first["stale"] + second["stale"])
    assert all(new.any() for new in first["new"].values())


@pytest.mark.parametrize("method", ["Algorithm 1", "SET", "input-aware"])
def test_sharded_training_is_replicated_training(ranks, method):
    replicated, shards = ranks[0][f"DDP, {method}"], ranks[0][f"FSDP, {method}"]
    assert sum(shards["moved"]) > 0
    assert shards["moved"] == replicated["moved"]
    for name, value in replicated["model"].items():
        torch.testing.assert_close(shards["model"][name], value)


@pytest.mark.parametrize("method", ["dense start", "gradual pruning"])
def test_a_replicated_model_shrinks_as_one_whose_gradients_are_averaged_by_hand(ranks, method):
    by_hand, wrapped = (ranks[0][f"{who}, {method}"] for who in ("own reduction", "data_parallel"))
    assert wrapped["moved"] == by_hand["moved"]
    assert wrapped["model"]["0.weight"].shape[0] == 10
    for name, value in by_hand["model"].items():
        torch.testing.assert_close(wrapped["model"][name], value)


def test_the_wrapper_for_shrinking_models_averages_what_was_accumulated_without_it(ranks):
    own = [torch.stack(grads).mean(0) for grads in zip(*(rank["accumulated"]["own"] for rank in ranks), strict=True)]
    for rank in ranks:
        for averaged, expected in zip(rank["accumulated"]["after"], own, strict=True):
            torch.testing.assert_close(averaged, expected)
    first, second = (rank["accumulated"]["before"] for rank in ranks)
    assert all(not torch.equal(*pair) for pair in zip(first, second, strict=True))


def test_a_model_is_not_replicated_without_a_process_group():
    with pytest.raises(AcfError, match="no process group to replicate over; call"):
        data_parallel(sparse_model(DENSE_START))


@pytest.mark.parametrize("wrapper", ["DDP", "FSDP"])
def test_regrown_blocks_have_neither_weights_nor_moments(ranks, wrapper):
    outcome = ranks[0][f"{wrapper}, Algorithm 1"]
    for name, regrown in outcome["regrown"].items():
        assert not outcome["moments"][name][regrown].any()
        assert not outcome["model"][f"{name}.weight"][regrown].any()
        assert regrown.any()
        assert outcome["moments"][name][~regrown].any()


def test_a_wrapper_that_fixes_shapes_is_refused_where_parameters_must_shrink(ranks):
    expected = "0 must shrink from 32 to 10 blocks, and DistributedDataParallel holds its weight at a fixed shape; "
    expected += "wrap it with acf.data_parallel(model), use init="
    assert all(expected in rank["refusals"]["DDP"] for rank in ranks)


def test_a_model_that_is_wrapped_before_it_has_shrunk_is_refused_when_it_should(ranks):
    assert all("DistributedDataParallel holds its weight at a fixed shape" in rank["late refusal"] for rank in ranks)
