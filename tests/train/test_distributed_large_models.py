"""FSDP2, HSDP, tensor parallelism, DCP and the meta device in two processes, against one with the same batches.

All scenarios share one pair of processes, because starting them takes longer than training.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel

from acf.errors import AcfError
from acf.masks import SET, BlockDST, GradualPruning
from acf.nn import BlockSparsity, block_sparse_layers, sparsify_
from acf.sparse import whole
from acf.train import TopologyController, attach
from acf.train.sharded_checkpoint import load_sharded, save_sharded
from tests.train import split_scenarios
from tests.train.two_ranks import WORLD_SIZE, assert_same, fully_shard, outcomes_of_two_ranks

STEPS, SAVED_AT, PART = 9, 5, 8  # saved between the two steps that score for the move of step 6
TIMES = {"total_steps": STEPS, "every": 3, "stop_at": 1.0, "schedule": "constant"}  # the last step moves blocks too
SPARSE, DENSE = BlockSparsity(0.7, block=4), BlockSparsity(0.7, block=4, init="dense")
POLICIES: dict[str, tuple[Any, BlockSparsity]] = {
    "RigL": (BlockDST(**TIMES), SPARSE),
    "SET": (SET(**TIMES), SPARSE),
    "dense start": (BlockDST(**TIMES, shrink_until=0.8), DENSE),
    "gradual pruning": (GradualPruning(total_steps=STEPS, every=3, stop_at=1.0), DENSE),
    "input-aware, scored over two steps": (BlockDST(**TIMES, score="input_aware", score_steps=2), SPARSE),
}
HYBRID = ("SET", "gradual pruning")
"""Policies that run with the shards replicated (HSDP); the others have one copy."""
RESUMED = ("dense start", "gradual pruning", "input-aware, scored over two steps")
Run = tuple[nn.Module, torch.optim.Optimizer, TopologyController]


def sparse_model(spec: BlockSparsity) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 12))
    sparsify_(model, spec)
    return model


def sharded(model: nn.Module, mesh: DeviceMesh | None = None) -> nn.Module:
    options = {} if mesh is None else {"mesh": mesh}
    fully_shard(model[0], **options)
    return fully_shard(model, **options)


def start(policy: Any, spec: BlockSparsity, wrap: Callable[[nn.Module], nn.Module] | None = None) -> Run:
    model = sparse_model(spec)
    wrapped = model if wrap is None else wrap(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=0.01)
    return wrapped, optimizer, attach(wrapped, optimizer, policy)


def batches(start_step: int, stop_step: int) -> Iterator[Tensor]:
    for step in range(start_step, stop_step):
        yield torch.randn(WORLD_SIZE * PART, 16, generator=torch.Generator().manual_seed(step))


def train(run: Run, parts: list[int], steps: tuple[int, int] = (0, STEPS)) -> None:
    """Train on some of the parts of every batch; a single process accumulates the gradients of all."""
    model, optimizer, _ = run
    for batch in batches(*steps):
        optimizer.zero_grad()
        for part in parts:
            x = batch[part * PART : (part + 1) * PART]
            (nn.functional.mse_loss(model(x), x.flip(1)[:, :12]) / len(parts)).backward()
        optimizer.step()


def outcome_of(run: Run) -> dict[str, Any]:
    model, optimizer, controller = run
    layers = block_sparse_layers(model)
    return {
        "model": {name: whole(value).clone() for name, value in model.state_dict().items()},
        "derived": {name: list(layer.topology) for name, layer in layers.items()},
        "moments": {name: whole(optimizer.state[layer.weight]["exp_avg_sq"]) for name, layer in layers.items()},
        "moved": [change.moved_blocks for change in controller.changes if change.step > SAVED_AT],
        "step": controller.step,
    }


def resumed(rank: int, folder: Path, name: str) -> dict[str, Any]:
    """Save in the middle, during the dense start where there is one; load into a new model and train to the end."""
    run = start(*POLICIES[name], sharded)
    train(run, [rank], (0, SAVED_AT))
    save_sharded(folder / name, *run, epoch=3)
    again = start(*POLICIES[name], sharded)
    parts = load_sharded(folder / name, *again)
    train(again, [rank], (SAVED_AT, STEPS))
    return {**outcome_of(again), "parts": parts, "blocks when saved": [x.shape[0] for x in block_weights(run[0])]}


def block_weights(model: nn.Module) -> list[Tensor]:
    return [layer.weight for layer in block_sparse_layers(model).values()]


def from_torch_alone(folder: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint, read as torch's documentation says."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    model = sharded(sparse_model(SPARSE))
    state = {"model": get_model_state_dict(model)}
    checkpoint.load(state, checkpoint_id=str(folder / RESUMED[-1]))
    set_model_state_dict(model, state["model"])
    return {name: whole(value).clone() for name, value in model.state_dict().items()}


def trained_alone_on_own_mesh(rank: int, shape: list[Any]) -> dict[str, Any]:
    """Each rank trains a model of its own, sharded over a mesh of one process, on its own part of the batches."""
    names = ("replicas", "shards")[-torch.tensor(shape).dim() :]
    run = start(*POLICIES["RigL"], lambda model: sharded(model, DeviceMesh("cpu", shape, mesh_dim_names=names)))
    train(run, [rank])
    return outcome_of(run)


def refusals(rank: int) -> dict[str, str]:
    found = {}
    run = start(*POLICIES["RigL"], sharded)
    run[2].step = 2
    run[0](torch.ones(2, 16)).square().mean().backward()
    run[0](torch.ones(2, 16))  # gathers the root's weights again
    found["gathered"] = message(run[1].step)
    meshes = [DeviceMesh("cpu", [rank]), init_device_mesh("cpu", (WORLD_SIZE,))]
    model = sparse_model(SPARSE)
    for layer, mesh in zip((model[0], model[2]), meshes, strict=True):
        fully_shard(layer, mesh=mesh)
    found["two meshes"] = message(lambda: attach(model, torch.optim.SGD(model.parameters()), BlockDST(**TIMES)))
    return found


def message(call: Callable[[], Any]) -> str:
    try:
        call()
    except AcfError as error:
        return str(error)
    return ""


def from_meta(rank: int, spec: BlockSparsity, wrap: Callable[[nn.Module], nn.Module]) -> dict[str, Any]:
    """A model that is built on the meta device, sharded, materialised and drawn; ranks are seeded differently."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 12))
        sparsify_(model, spec)
    wrapped = wrap(model)
    wrapped.to_empty(device="cpu")
    torch.manual_seed(rank)
    for module in wrapped.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=0.01)
    initial = {name: whole(value).clone() for name, value in wrapped.state_dict().items()}
    run = wrapped, optimizer, attach(wrapped, optimizer, BlockDST(**TIMES))
    train(run, [rank])
    return {"initial": initial, **outcome_of(run)}


def work(rank: int, folder: Path) -> dict[str, Any]:
    """Every scenario, one after another in one process."""
    outcome: dict[str, Any] = {}
    hybrid = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicas", "shards"))
    for name in POLICIES:
        mesh = hybrid if name in HYBRID else None
        run = start(*POLICIES[name], lambda model, mesh=mesh: sharded(model, mesh))
        train(run, [rank])
        outcome[name] = outcome_of(run)
    outcome |= {f"resumed, {name}": resumed(rank, folder, name) for name in RESUMED}
    outcome["read by torch"] = from_torch_alone(folder)
    outcome["own mesh"] = {
        "FSDP": trained_alone_on_own_mesh(rank, [rank]),
        "HSDP": trained_alone_on_own_mesh(rank, [[rank]]),
    }
    outcome["refusals"] = refusals(rank)
    outcome["split"] = split_scenarios.work(rank, folder)
    outcome["meta"] = {spec.init: from_meta(rank, spec, sharded) for spec in (SPARSE, DENSE)}
    return outcome


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    return outcomes_of_two_ranks(work, folder)


@cache
def alone(name: str) -> dict[str, Any]:
    """One process, which accumulates the gradients of both parts of every batch."""
    run = start(*POLICIES[name])
    train(run, [0, 1])
    return outcome_of(run)


def assert_close(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same topology, moves and steps; weights and moments within the tolerance of float32."""
    assert_same(
        [actual[key] for key in ("derived", "moved", "step")], [expected[k] for k in ("derived", "moved", "step")]
    )
    for key in ("model", "moments"):
        torch.testing.assert_close(actual[key], expected[key])


@pytest.mark.parametrize("name", POLICIES)
def test_sharded_training_is_that_of_one_process_with_the_same_batches(ranks, name):
    first, second = (rank[name] for rank in ranks)
    assert_same(first, second)
    assert sum(alone(name)["moved"]) > 0 or name == "gradual pruning"
    assert_close(first, alone(name))


def test_a_dense_start_ends_at_its_target_under_sharding(ranks):
    for name in ("dense start", "gradual pruning"):
        assert [ranks[0][name]["model"][f"{layer}.weight"].shape[0] for layer in (0, 2)] == [10, 7]


@pytest.mark.parametrize("name", RESUMED)
def test_a_run_resumed_from_a_distributed_checkpoint_is_the_uninterrupted_one(ranks, name):
    for rank in ranks:
        interrupted, resumed = rank[name], rank[f"resumed, {name}"]
        assert_same(interrupted, {key: resumed[key] for key in interrupted})
        assert resumed["parts"] == {"epoch": 3}


def test_checkpoints_were_taken_while_layers_were_above_their_targets(ranks):
    for name in ("dense start", "gradual pruning"):
        assert all(10 < rank[f"resumed, {name}"]["blocks when saved"][0] < 32 for rank in ranks)


@pytest.mark.parametrize("name", RESUMED)
def test_one_process_goes_on_with_the_checkpoint_of_two(ranks, folder, name):
    run = start(*POLICIES[name])
    load_sharded(folder / name, *run)
    train(run, [0, 1], (SAVED_AT, STEPS))
    assert_close(outcome_of(run), alone(name))


def test_torch_alone_reads_the_weights_of_a_checkpoint(ranks):
    run = start(*POLICIES[RESUMED[-1]])
    train(run, [0, 1], (0, SAVED_AT))
    torch.testing.assert_close(ranks[0]["read by torch"], dict(run[0].state_dict()))


@pytest.mark.parametrize("kind", ["FSDP", "HSDP"])
def test_blocks_move_with_the_processes_of_the_mesh_and_no_others(ranks, kind):
    for rank, outcome in enumerate(ranks):
        run = start(*POLICIES["RigL"])
        train(run, [rank])
        assert_same(outcome["own mesh"][kind], outcome_of(run))


def test_what_cannot_be_right_is_refused(ranks):
    for rank, outcome in enumerate(ranks):
        assert "2.weight is another tensor" in outcome["refusals"]["gathered"]
        assert "call model.reshard() before optimizer.step()" in outcome["refusals"]["gathered"]
        expected = f"0 is sharded over the processes [{rank}] and 2 over [0, 1]"
        assert outcome["refusals"]["two meshes"].startswith(expected)


def test_the_flat_parameters_of_fsdp1_are_refused():
    wrapper = FullyShardedDataParallel.__new__(FullyShardedDataParallel)  # torch makes none without an accelerator
    nn.Module.__init__(wrapper)
    model = nn.Sequential(*sparse_model(SPARSE), wrapper)
    with pytest.raises(AcfError, match="FullyShardedDataParallel, whose flat parameters hold no whole blocks; use"):
        attach(model, torch.optim.SGD(model[:3].parameters()), BlockDST(**TIMES))


def test_a_checkpoint_of_other_blocks_and_a_folder_without_one_are_refused(ranks, folder):
    other = start(BlockDST(**TIMES), BlockSparsity(0.5, block=4))
    with pytest.raises(AcfError, match=r"has \[10, 4, 4\] 0.weight, this layer packs \[16, 4, 4\]"):
        load_sharded(folder / RESUMED[-1], *other)
    with pytest.raises(AcfError, match="holds no distributed checkpoint; pass a folder of save_sharded"):
        load_sharded(folder, *other)


@pytest.mark.parametrize("init", ["sparse", "dense"])
def test_a_sharded_model_of_the_meta_device_draws_one_topology_on_all_ranks(ranks, init):
    first, second = (rank["meta"][init] for rank in ranks)
    assert_same(first, second)
    single = from_meta(0, BlockSparsity(0.7, block=4, init=init), lambda model: model)["initial"]
    assert_same(first["initial"], single)
    assert not torch.equal(first["model"]["0.block_cols"], single["0.block_cols"])


def test_a_split_mlp_computes_what_the_unsplit_one_does_forward_and_backward(ranks):
    first, second = (rank["split"]["pass"] for rank in ranks)
    assert_same(first, second)
    unsplit = split_scenarios.with_parts(split_scenarios.mlp(SPARSE), first["state"])
    for key, value in split_scenarios.one_pass(unsplit).items():
        torch.testing.assert_close(first[key], value)


@pytest.mark.parametrize("name", split_scenarios.POLICIES)
def test_split_layers_train_and_move_blocks_as_one_process_that_plans_for_every_part(ranks, folder, name):
    first, second = (rank["split"][name] for rank in ranks)
    assert_same(first, second)
    policy, spec = split_scenarios.POLICIES[name]
    unsplit = split_scenarios.with_parts(split_scenarios.mlp(spec), first["initial"])
    expected = split_scenarios.outcome_of(unsplit, *split_scenarios.train(unsplit, policy))
    resumed = split_scenarios.with_parts(split_scenarios.mlp(spec), first["initial"])
    checkpoint = folder / f"split, {name}"
    run = split_scenarios.train(resumed, policy, (split_scenarios.SAVED_AT, split_scenarios.STEPS), checkpoint)
    assert sum(first["moved"]) > 0
    assert not torch.equal(first["initial"]["0.weight"], first["model"]["0.weight"])
    for outcome in (first, split_scenarios.outcome_of(resumed, *run)):
        torch.testing.assert_close({key: outcome[key] for key in expected}, expected)
    torch.testing.assert_close(first["y"], split_scenarios.one_pass(unsplit)["y"])


@pytest.mark.parametrize("name", split_scenarios.POLICIES)
def test_every_part_holds_as_many_blocks_as_any_other_after_moves(ranks, name):
    model = ranks[0]["split"][name]["model"]
    assert torch.bincount(model["0.block_rows"] // 4).tolist() == [5, 5]
    assert torch.bincount(model["2.block_cols"] // 4).tolist() == [5, 5]
    assert ranks[0]["split"][name]["sparsity"] == 1.0 - 20 / 64


def test_a_split_model_loads_the_state_of_an_unsplit_one(ranks):
    for rank in ranks:
        loaded = rank["split"]["loaded"]
        unsplit = split_scenarios.with_parts(split_scenarios.mlp(SPARSE), loaded["state"])
        torch.testing.assert_close(loaded["y"], split_scenarios.one_pass(unsplit)["y"])
        for refusal in (loaded["refused"], loaded["loading"]):
            assert refusal.startswith("0.weight in the checkpoint is of an unsplit layer, whose slots are in")


def test_split_layers_under_fsdp_train_as_without_it(ranks):
    alone = ranks[0]["split"]["RigL"]
    for rank in ranks:
        sharded = rank["split"]["FSDP"]
        assert sharded.pop("refused").startswith(
            "0 must shrink from 32 to 10 blocks, but fully_shard got a weight that"
        )
        torch.testing.assert_close(sharded, {key: alone[key] for key in sharded})


def test_split_layers_of_the_meta_device_draw_equal_parts(ranks):
    first, second = (rank["split"]["meta"] for rank in ranks)
    assert_same(first, second)
    unsplit = split_scenarios.with_parts(split_scenarios.mlp(BlockSparsity(0.5, block=4)), first["state"])
    torch.testing.assert_close(first["y"], split_scenarios.one_pass(unsplit)["y"])
    assert torch.bincount(first["state"]["0.block_rows"] // 4).tolist() == [8, 8]


@pytest.mark.parametrize(
    ("case", "expected"),
    {
        "unequal": "the parts of the layer hold 16 and 0 blocks, and every process must hold as many as any other",
        "dense": "a Linear cannot be split into blocks over processes; use the style for a BlockSparseLinear",
        "two dimensions": "the device mesh has 2 dimensions; pass one of them",
        "three rows": "3 block rows cannot be split over 2 processes; use a smaller block or fewer processes",
        "twice": "a SplitBlockLinear cannot be split",
    }.items(),
)
def test_layers_that_cannot_be_split_are_refused(ranks, case, expected):
    assert all(rank["split"]["refusals"][case].startswith(expected) for rank in ranks)
