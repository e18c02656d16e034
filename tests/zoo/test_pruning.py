"""Pruning of single weights in training: totals stay, zeros stay zero, and layers regrow what the method says."""

import pytest
import torch
from torch import nn

from acf.errors import DataError, SparsityError
from acf.zoo.capture import CaptureSpec
from acf.zoo.pruning import PRUNINGS, WeightPruning


def pruned(name: str) -> tuple[WeightPruning, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    pruning = PRUNINGS[name](model, 0.9)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        pruning.apply()
    return pruning, optimizer


@pytest.mark.parametrize("name", PRUNINGS)
def test_an_update_moves_weights_and_keeps_their_number(name: str) -> None:
    pruning, optimizer = pruned(name)
    before = {weight: mask.clone() for weight, mask in pruning.masks.items()}
    count = pruning.present
    pruning.update(optimizer)
    assert pruning.present == count == sum(round(0.1 * weight.numel()) for weight in pruning.masks)
    assert any(not mask.equal(before[weight]) for weight, mask in pruning.masks.items())
    assert all(not weight[~mask].any() for weight, mask in pruning.masks.items())


@pytest.mark.parametrize("name", PRUNINGS)
def test_the_layer_that_reads_the_data_stays_dense(name: str) -> None:
    pruning, _ = pruned(name)
    assert [tuple(weight.shape) for weight in pruning.masks] == [(32, 32), (4, 32)]


def test_sparse_momentum_regrows_where_momentum_is_largest() -> None:
    pruning, optimizer = pruned("sparse-momentum")
    weight = next(iter(pruning.masks))
    place = (~pruning.masks[weight]).nonzero()[0]
    optimizer.state[weight]["exp_avg"][tuple(place)] = 1e3
    pruning.update(optimizer)
    assert pruning.masks[weight][tuple(place)]


def test_bad_settings_are_refused() -> None:
    with pytest.raises(SparsityError, match=r"sparsity 1.0 is outside"):
        PRUNINGS["sparse-momentum"](nn.Linear(2, 2), 1.0)
    with pytest.raises(DataError, match="pruning 'momentum' is not known"):
        CaptureSpec("ncf", pruning="momentum")


def test_rigl_regrows_where_the_gradient_is_largest_and_moves_fewer_weights_towards_the_end() -> None:
    pruning, optimizer = pruned("rigl")
    weight, mask = next(iter(pruning.masks.items()))
    before = mask.clone()
    pruning.progress = 1.0
    pruning.update(optimizer)
    assert mask.equal(before), "the share that moves has fallen to none"
    pruning.progress = 0.0
    place = (~mask).nonzero()[0]
    weight.grad[tuple(place)] = 1e6
    pruning.update(optimizer)
    assert mask[tuple(place)]


def test_moments_of_absent_weights_are_zero() -> None:
    pruning, optimizer = pruned("rigl")
    pruning.apply_to_state(optimizer)
    for weight, mask in pruning.masks.items():
        moment = optimizer.state[weight]["exp_avg"]
        assert not moment[~mask].any()
        assert moment[mask].any()


def test_masks_are_saved_and_loaded() -> None:
    pruning, optimizer = pruned("rigl")
    saved = {
        key: [each.clone() for each in value] if key == "masks" else value
        for key, value in pruning.state_dict().items()
    }
    pruning.update(optimizer)
    pruning.load_state_dict(saved)
    assert all(mask.equal(kept) for mask, kept in zip(pruning.masks.values(), saved["masks"], strict=True))


def test_masks_of_another_model_are_refused() -> None:
    pruning, _ = pruned("rigl")
    other = PRUNINGS["rigl"](nn.Linear(8, 4), 0.5)
    with pytest.raises(SparsityError, match="the saved masks are those of another model; load them into"):
        pruning.load_state_dict(other.state_dict())


def test_rigl_without_gradients_says_when_to_update() -> None:
    pruning, optimizer = pruned("rigl")
    optimizer.zero_grad()
    with pytest.raises(SparsityError, match="a weight has none; call update after a backward pass"):
        pruning.update(optimizer)
