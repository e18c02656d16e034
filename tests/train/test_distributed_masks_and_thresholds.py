"""N:M masks and gradient thresholds in two processes with different data: replicas stay replicas.

All scenarios share one pair of processes, because starting them takes longer than training.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import acf
from acf.gradients import RULES, GradientSparsifier, average_thresholds, sparsifier_of
from acf.masks import nm_mask
from acf.nn import NMLayer
from acf.nn.nm_spec import NM_METHODS
from acf.sparse import whole
from tests.train.two_ranks import assert_same, fully_shard, outcomes_of_two_ranks

STEPS = 8

NM_SPECS = {method: acf.NMSparsity(2, 4, method) for method in NM_METHODS}
GRADIENT_SPECS = {method: acf.GradientSparsity(0.6, method) for method in RULES}


def replicated(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model)


def replicated_with_own_buffers(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model, broadcast_buffers=False)


def sharded(model: nn.Module) -> nn.Module:
    fully_shard(model[0])
    return fully_shard(model)


def new_model(*specs: Any) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
    for spec in specs:
        acf.sparsify_(model, spec)
    return model


def train(rank: int, wrap: Callable[[nn.Module], nn.Module], *specs: Any, average: bool = False) -> dict[str, Any]:
    """Train with data of this rank's own; what came out, gathered from all shards."""
    model = new_model(*specs)
    masks = record_masks(model)
    used = record_thresholds(model)
    wrapped = wrap(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=0.01)
    moves = any(isinstance(spec, acf.BlockSparsity) for spec in specs)
    if moves:
        acf.attach(wrapped, optimizer, acf.BlockDST(total_steps=STEPS, every=2, stop_at=1.0, schedule="constant"))
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        x = torch.randn(8, 16, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(wrapped(x), (1.0 + rank) * x.flip(1)).backward()
        optimizer.step()
        if average:
            average_thresholds(wrapped)
    state = {name: whole(value).clone() for name, value in model.state_dict().items()}
    return {
        "thresholds": {name: value for name, value in state.items() if "sparsifier" in name},
        "model": {name: value for name, value in state.items() if "sparsifier" not in name},
        "moments": [whole(each["exp_avg"]) for each in optimizer.state.values()],
        "masks": masks,
        "thresholds in the forward pass": used,
    }


def record_masks(model: nn.Module) -> list[list[Tensor | None]]:
    """Grows in every forward pass by the weight that a layer computes with and the masks of it."""
    recorded: list[list[Tensor | None]] = []

    def record(layer: NMLayer, *_: Any) -> None:
        masks = layer.masks()
        recorded.append([layer.weight.detach().clone(), masks.forward, masks.backward])

    for layer in model.modules():
        if isinstance(layer, NMLayer):
            layer.register_forward_hook(record)
    return recorded


def record_thresholds(model: nn.Module) -> list[Tensor]:
    """Grows in every forward pass by the threshold that the backward pass will use."""
    recorded: list[Tensor] = []
    for layer in model.modules():
        if isinstance(layer, GradientSparsifier):
            layer.register_forward_hook(lambda layer, *_: recorded.append(layer.threshold.clone()))
    return recorded


def same_weights_from_a_full_checkpoint(model: nn.Module, *specs: Any) -> bool:
    """Whether a sharded model's gathered state loads into one that is not sharded."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if torch.distributed.get_rank() != 0:
        return True  # rank 0 alone gets the weights
    plain = new_model(*specs)
    plain.load_state_dict(full)
    return all(torch.equal(value, full[name]) for name, value in plain.state_dict().items())


def refusals(folder: Path) -> dict[str, str]:
    """What is refused for a sharded model, and what is said."""
    path = folder / "shards.pt"
    attempts: dict[str, Callable[[], object]] = {
        "save": lambda: acf.save_checkpoint(path, model=sharded(new_model(NM_SPECS["bdwp"]))),
        **{
            f"sparsify {name}": partial(acf.sparsify_, sharded(new_model()), each)
            for name, each in WEIGHT_SPECS.items()
        },
        **{f"densify {name}": partial(acf.densify_, sharded(new_model(each))) for name, each in WEIGHT_SPECS.items()},
    }
    said = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except acf.AcfError as error:
            said[name] = str(error)
    return said


WEIGHT_SPECS = {**NM_SPECS, "block": acf.BlockSparsity(0.7, block=4)}
SCENARIOS: dict[str, tuple[Any, ...]] = {
    **{f"DDP, {method}": (replicated, spec) for method, spec in NM_SPECS.items()},
    **{f"FSDP, {method}": (sharded, spec) for method, spec in NM_SPECS.items()},
    **{f"DDP, {method}": (replicated, spec) for method, spec in GRADIENT_SPECS.items()},
    **{f"FSDP, {method}": (sharded, spec) for method, spec in GRADIENT_SPECS.items()},
    "DDP, bdwp and dts": (replicated, NM_SPECS["bdwp"], GRADIENT_SPECS["dts"]),
    "FSDP, bdwp and dts": (sharded, NM_SPECS["bdwp"], GRADIENT_SPECS["dts"]),
    "DDP, block and dts": (replicated, WEIGHT_SPECS["block"], GRADIENT_SPECS["dts"]),
    "FSDP, block and dts": (sharded, WEIGHT_SPECS["block"], GRADIENT_SPECS["dts"]),
    "DDP with own buffers, dts": (replicated_with_own_buffers, GRADIENT_SPECS["dts"]),
}
AVERAGED = {"FSDP, dts": sharded, "DDP with own buffers, dts": replicated_with_own_buffers}


def work(rank: int, folder: Path) -> dict[str, Any]:
    """Every scenario, one after another in one process."""
    outcome: dict[str, Any] = {name: train(rank, *scenario) for name, scenario in SCENARIOS.items()}
    outcome["averaged"] = {
        name: train(rank, wrap, GRADIENT_SPECS["dts"], average=True) for name, wrap in AVERAGED.items()
    }
    outcome["full checkpoints"] = {
        name: same_weights_from_a_full_checkpoint(sharded(new_model(spec)), spec) for name, spec in WEIGHT_SPECS.items()
    }
    outcome["refusals"] = refusals(folder)
    return outcome


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return outcomes_of_two_ranks(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_ranks_with_different_data_keep_the_same_weights_moments_and_masks(ranks, name):
    first, second = (rank[name] for rank in ranks)
    for part in ("model", "moments", "masks"):
        assert_same(first[part], second[part])
    initial = new_model(*SCENARIOS[name][1:]).state_dict()
    assert not torch.equal(first["model"]["0.weight"], initial["0.weight"])
    assert all(value.isfinite().all() for value in first["model"].values())


@pytest.mark.parametrize("wrapper", ["DDP", "FSDP"])
@pytest.mark.parametrize("method", NM_SPECS)
def test_every_pass_masks_the_weight_it_has(ranks, wrapper, method):
    recorded, dims = ranks[0][f"{wrapper}, {method}"]["masks"], NM_METHODS[method]
    assert len(recorded) == 2 * STEPS
    assert not torch.equal(recorded[0][0], recorded[-2][0])
    for weight, *masks in recorded:
        for mask, dim in zip(masks, (dims.forward_dim, dims.backward_dim), strict=True):
            assert (mask is None) is (dim is None)
            assert dim is None or torch.equal(mask, nm_mask(weight, 2, 4, dim))


@pytest.mark.parametrize("method", [*NM_SPECS, "top-k"])
def test_sharded_training_is_replicated_training(ranks, method):
    replica, shards = ranks[0][f"DDP, {method}"], ranks[0][f"FSDP, {method}"]
    for name, value in replica["model"].items():
        torch.testing.assert_close(shards["model"][name], value)


@pytest.mark.parametrize("method", GRADIENT_SPECS)
def test_under_ddp_all_ranks_cut_every_gradient_at_the_threshold_of_rank_0(ranks, method):
    first, second = (rank[f"DDP, {method}"]["thresholds in the forward pass"] for rank in ranks)
    assert len(first) == 2 * STEPS
    assert_same(first, second)
    learns = method in ("dts", "gaussian", "static")
    assert any(bool(threshold) for threshold in first) is (learns or method == "top-k")


@pytest.mark.parametrize("name", AVERAGED)
def test_where_buffers_are_not_broadcast_ranks_learn_thresholds_of_their_own_until_they_are_averaged(ranks, name):
    own, averaged = ([rank[name] for rank in ranks], [rank["averaged"][name] for rank in ranks])
    assert not torch.equal(*(each["thresholds"]["0.gradient_sparsifier.threshold"] for each in own))
    assert_same(averaged[0]["thresholds"], averaged[1]["thresholds"])
    assert_same(averaged[0]["model"], averaged[1]["model"])
    assert averaged[0]["thresholds"]["0.gradient_sparsifier.threshold"] > 0.0
    assert averaged[0]["thresholds"]["0.gradient_sparsifier.step"] == STEPS


def test_a_sharded_model_gathers_into_a_checkpoint_that_a_plain_one_loads(ranks):
    assert all(all(rank["full checkpoints"].values()) for rank in ranks)


def test_one_file_of_one_rank_is_refused_for_a_sharded_model(ranks):
    assert all(rank["refusals"]["save"].startswith("model is sharded over processes") for rank in ranks)


@pytest.mark.parametrize("kind", WEIGHT_SPECS)
def test_a_sharded_model_is_neither_sparsified_nor_densified_but_told_what_to_do(ranks, kind):
    for rank in ranks:
        assert rank["refusals"][f"sparsify {kind}"].endswith("call sparsify_ before fully_shard")
        assert "0.weight is sharded over processes" in rank["refusals"][f"densify {kind}"]


def test_one_process_keeps_its_thresholds_when_they_are_averaged():
    model = new_model(GRADIENT_SPECS["static"])
    sparsifier = sparsifier_of(model[0])
    assert sparsifier is not None
    sparsifier.threshold.fill_(0.25)
    average_thresholds(model)
    assert sparsifier.threshold == 0.25
