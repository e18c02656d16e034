"""What two processes do with layers that are split over them, for the tests of distributed training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

from acf.errors import AcfError
from acf.masks import SET, BlockDST, GridParts
from acf.nn import BlockSparsity, block_sparse_layers, sparsify_
from acf.nn.tensor_parallel import ColwiseBlockParallel, RowwiseBlockParallel
from acf.sparse import BlockTopology, distributed_like, whole
from acf.train import attach
from acf.train.sharded_checkpoint import load_sharded, save_sharded
from tests.train.two_ranks import fully_shard

STEPS, SAVED_AT = 9, 4
TIMES = {"total_steps": STEPS, "every": 3, "stop_at": 1.0, "schedule": "constant"}
POLICIES: dict[str, tuple[Any, BlockSparsity]] = {
    "RigL": (BlockDST(**TIMES, score="input_aware"), BlockSparsity(0.7, block=4)),
    "SET, balanced": (SET(**TIMES), BlockSparsity(0.7, block=4, distribution="balanced")),
    "dense start": (BlockDST(**TIMES, shrink_until=0.8), BlockSparsity(0.7, block=4, init="dense")),
}


def mlp(spec: BlockSparsity, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    sparsify_(model, spec)
    return model


def split(model: nn.Module, mesh: DeviceMesh, rebalance: bool = True) -> nn.Module:
    styles = ColwiseBlockParallel(rebalance=rebalance), RowwiseBlockParallel(rebalance=rebalance)
    return parallelize_module(model, mesh, dict(zip(("0", "2"), styles, strict=True)))


def with_parts(model: nn.Module, state: dict[str, Tensor]) -> nn.Module:
    """A model in one process that holds ``state`` and plans its moves as if its layers were split over two."""
    model.load_state_dict(state)
    for layer, axis in ((model[0], 0), (model[2], 1)):
        layer.parts = GridParts(axis, 2)
        layer.target_blocks = layer.target_blocks // 2 * 2
    return model


def full_state(model: nn.Module) -> dict[str, Tensor]:
    return {name: whole(value).detach().clone() for name, value in model.state_dict().items()}


def one_pass(model: nn.Module) -> dict[str, Any]:
    """Output, gradients of input and parameters, and their norm as ``clip_grad_norm_`` sees it."""
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(7)).requires_grad_()
    y = model(x)
    y.square().mean().backward()
    gradients = [whole(parameter.grad).clone() for parameter in model.parameters()]
    norm = whole(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    return {"y": y.detach(), "x.grad": x.grad, "gradients": gradients, "norm": norm}


def train(model: nn.Module, policy: Any, steps: tuple[int, int] = (0, STEPS), load: Path | None = None) -> Any:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    controller = attach(model, optimizer, policy)
    if load is not None:
        load_sharded(load, model, optimizer, controller)
    for step in range(*steps):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x.flip(1)).backward()
        optimizer.step()
    return optimizer, controller


def outcome_of(model: nn.Module, optimizer: Any, controller: Any) -> dict[str, Any]:
    layers = block_sparse_layers(model)
    return {
        "model": full_state(model),
        "moments": {name: whole(optimizer.state[layer.weight]["exp_avg"]) for name, layer in layers.items()},
        "moved": [change.moved_blocks for change in controller.changes if change.step > SAVED_AT],
        "sparsity": controller.sparsity,
    }


def trained(rank: int, name: str, mesh: DeviceMesh, folder: Path) -> dict[str, Any]:
    """Trained with moves; with what it started from, and a checkpoint of the middle."""
    policy, spec = POLICIES[name]
    model = split(mlp(spec, seed=rank), mesh)
    initial = full_state(model)
    run = train(model, policy, (0, SAVED_AT))
    save_sharded(folder / f"split, {name}", model, *run)
    run[1].detach()
    again = split(mlp(spec, seed=rank), mesh)
    rest = train(again, policy, (SAVED_AT, STEPS), folder / f"split, {name}")
    return {"initial": initial, **outcome_of(again, *rest), "y": one_pass(again)["y"]}


def shuffled(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same layers with their slots in another order, as an unsplit run leaves them."""
    state = dict(state)
    for layer in ("0", "2"):
        for name in ("weight", "block_rows", "block_cols"):
            state[f"{layer}.{name}"] = state[f"{layer}.{name}"].flip(0)
    return state


def loaded(mesh: DeviceMesh, folder: Path) -> dict[str, Any]:
    """A split model that gets the state of an unsplit one, as plain tensors and, refused, as DTensors."""
    model = split(mlp(POLICIES["RigL"][1]), mesh)
    state = full_state(split(mlp(POLICIES["RigL"][1], seed=5), mesh))
    model.load_state_dict(shuffled(state))
    parameters = dict(model.named_parameters())
    sharded = {key: distributed_like(x, parameters.get(key, x)) for key, x in shuffled(state).items()}
    unsplit = with_parts(mlp(POLICIES["RigL"][1]), shuffled(state))
    save_sharded(folder / "unsplit", unsplit, optimizer_of(unsplit))
    before = full_state(model)
    loading = message(lambda: load_sharded(folder / "unsplit", model, optimizer_of(model)))
    assert all(torch.equal(before[key], value) for key, value in full_state(model).items())
    return {
        "loading": loading,
        "state": state,
        "y": one_pass(model)["y"],
        "refused": message(lambda: model.load_state_dict(sharded)),
    }


def with_fsdp(name: str, state: dict[str, Tensor]) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tensor"))
    model = split(mlp(POLICIES[name][1]), mesh["tensor"])
    model.load_state_dict(state)
    fully_shard(model[0], mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    return outcome_of(model, *train(model, POLICIES[name][0])) | {"refused": dense_start_with_fsdp(mesh)}


def dense_start_with_fsdp(mesh: DeviceMesh) -> str:
    policy, spec = POLICIES["dense start"]
    model = fully_shard(split(mlp(spec), mesh["tensor"]), mesh=mesh["data"])
    return message(lambda: train(model, policy))


def from_meta(rank: int, mesh: DeviceMesh) -> dict[str, Any]:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        sparsify_(model, BlockSparsity(0.5, block=4))
    split(model, mesh).to_empty(device="cpu")
    torch.manual_seed(rank)
    model[0].reset_parameters()
    model[2].reset_parameters()
    return {"state": full_state(model), "y": one_pass(model)["y"]}


def refusals(mesh: DeviceMesh) -> dict[str, str]:
    unequal = mlp(BlockSparsity(0.5, block=4))
    mask = torch.ones(8, 4, dtype=torch.bool)
    mask[4:] = False
    topology = BlockTopology.from_mask(unequal[0].layout, mask)
    unequal[0].replace_blocks(unequal[0].weight.detach(), topology)
    model, square = mlp(BlockSparsity(0.5, block=4)), init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))
    thin = nn.Sequential(nn.Linear(16, 12))
    sparsify_(thin, BlockSparsity(0.5, block=4))
    return {
        "unequal": message(lambda: split(unequal, mesh, rebalance=False)),
        "dense": message(
            lambda: parallelize_module(nn.Sequential(nn.Linear(4, 4)), mesh, {"0": ColwiseBlockParallel()})
        ),
        "two dimensions": message(lambda: ColwiseBlockParallel()._apply(model[0], square)),
        "three rows": message(lambda: ColwiseBlockParallel()._apply(thin[0], mesh)),
        "twice": message(lambda: split(split(model, mesh), mesh)),
    }


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.0)


def message(call: Callable[[], Any]) -> str:
    try:
        call()
    except AcfError as error:
        return str(error)
    return ""


def work(rank: int, folder: Path) -> dict[str, Any]:
    """All of it."""
    mesh = init_device_mesh("cpu", (2,))
    model = split(mlp(POLICIES["RigL"][1], seed=rank), mesh)
    outcome: dict[str, Any] = {"pass": {"state": full_state(model), **one_pass(model)}}
    outcome |= {name: trained(rank, name, mesh, folder) for name in POLICIES}
    outcome["loaded"] = loaded(mesh, folder)
    outcome["FSDP"] = with_fsdp("RigL", outcome["RigL"]["initial"])
    outcome["meta"] = from_meta(rank, mesh)
    outcome["refusals"] = refusals(mesh)
    return outcome
