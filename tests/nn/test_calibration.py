"""Blocks chosen by weight times input, on a batch that the trained model is run on."""

import pytest
import torch
from torch import nn

from acf.errors import SparsityError
from acf.gradients import GradientSparsity
from acf.nn import BlockSparsity, block_sparse_layers, sparsify_

HALF = BlockSparsity(0.5, block=4)


def loud(features: int, columns: slice) -> torch.Tensor:
    """Inputs of which some features are a hundred times louder."""
    x = torch.randn(64, features)
    x[:, columns] *= 100.0
    return x


def test_blocks_that_meet_loud_inputs_stay_where_weights_alone_would_say_otherwise():
    model = nn.Sequential(nn.Linear(16, 16))
    with torch.no_grad():
        model[0].weight[:, :8] *= 0.2
    sparsify_(model, HALF, calibration=loud(16, slice(0, 8)))
    assert model[0].mask()[:, :2].all()
    assert not model[0].mask()[:, 2:].any()


def test_the_score_is_the_norm_of_weight_times_input_and_the_values_stay():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8)), loud(16, slice(4, 6))
    dense = [model[index].weight.detach().clone() for index in (0, 2)]
    inputs = [x, model[:2](x).detach()]
    sparsify_(model, HALF, calibration=x)
    for layer, weight, seen in zip(block_sparse_layers(model).values(), dense, inputs, strict=True):
        scored = (weight * seen.square().mean(0).sqrt()).unflatten(0, (-1, 4)).unflatten(2, (-1, 4))
        norms = scored.square().sum((1, 3))
        assert norms[layer.mask()].min() >= norms[~layer.mask()].max()
        kept = layer.mask().repeat_interleave(4, 0).repeat_interleave(4, 1)
        assert torch.equal(layer.weight_matrix(), weight * kept)


def test_a_convolution_counts_the_channels_of_its_input():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1))
    x = torch.randn(2, 8, 5, 5)
    x[:, 4:] *= 100.0
    sparsify_(model, HALF, calibration=x)
    by_tap_and_channel = model[0].mask().reshape(2, 9, 2)
    assert by_tap_and_channel[:, :, 1].all()
    assert not by_tap_and_channel[:, :, 0].any()


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.unused = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.left(left) + self.right(right)


@pytest.mark.parametrize("as_dict", [True, False])
def test_a_batch_may_have_several_arguments(as_dict):
    x = torch.randn(4, 8)
    batch = {"left": x, "right": x} if as_dict else (x, x)
    model = TwoInputs()
    sparsify_(model, HALF, filter_fn=lambda _, name: name != "unused", calibration=batch)
    assert len(block_sparse_layers(model)) == 2


def test_a_layer_that_the_batch_does_not_reach_is_refused_by_name_and_nothing_changes():
    model = TwoInputs()
    with pytest.raises(SparsityError, match=r"'unused' got no input from the calibration batch.*filter_fn"):
        sparsify_(model, HALF, calibration=(torch.randn(4, 8), torch.randn(4, 8)))
    assert not block_sparse_layers(model)
    assert not model.left._forward_pre_hooks


def test_the_run_leaves_modes_and_statistics_as_they_are():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    model[2].eval()
    sparsify_(model, HALF, calibration=torch.randn(4, 8))
    assert [module.training for module in model] == [True, True, False]
    assert model[1].num_batches_tracked == 0


@pytest.mark.parametrize("spec", [GradientSparsity(0.9), BlockSparsity(0.5, block=4, init="dense")])
def test_a_spec_that_drops_no_blocks_refuses_a_calibration(spec):
    with pytest.raises(SparsityError, match="calibration ranks the blocks that BlockSparsity drops at once"):
        sparsify_(nn.Sequential(nn.Linear(8, 8)), spec, calibration=torch.randn(4, 8))
