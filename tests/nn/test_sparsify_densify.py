"""Turning sparse layers back into plain torch layers."""

import pytest
import torch
from torch import nn

from acf.errors import SparsityError
from acf.nn import BlockSparsity, block_sparse_layers, densify_, sparsify_

HALF = BlockSparsity(sparsity=0.5, block=4)


def mixed_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(8, 8, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
        nn.Conv2d(8, 8, 2, padding="same", bias=False),
        nn.Conv2d(8, 4, 3, padding=1, padding_mode="circular"),
        nn.Flatten(),
        nn.Linear(4 * 4 * 8, 8, bias=False),
        nn.Linear(8, 12),
    )


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # of torch's own layer
def test_densify_gives_plain_layers_with_the_same_outputs_and_settings():
    model = mixed_model()
    plain = [repr(layer) for layer in model]
    sparsify_(model, HALF)
    x = torch.randn(2, 8, 7, 6)
    expected = model(x)
    assert densify_(model) is model
    assert {type(layer) for layer in model} == {nn.Conv2d, nn.Flatten, nn.Linear}
    assert [repr(layer) for layer in model] == plain
    torch.testing.assert_close(model(x), expected)


def test_absent_blocks_become_stored_zeros_and_present_ones_keep_their_values():
    model = nn.Sequential(nn.Linear(8, 8))
    sparsify_(model, HALF)
    sparse = model[0]
    densify_(model)
    blocks = sparse.layout.blocks(model[0].weight.detach())
    for slot, (row, col) in enumerate(zip(sparse.block_rows, sparse.block_cols, strict=True)):
        assert torch.equal(blocks[row, col], sparse.weight[slot])
    assert not blocks[~sparse.mask()].any()


def test_requires_grad_mode_dtype_and_bias_stay_as_they_were():
    model = nn.Sequential(nn.Linear(8, 8), nn.Conv2d(8, 8, 1), nn.Linear(8, 8), nn.Conv2d(8, 8, 1)).eval()
    model[0].weight.requires_grad_(False)
    model[1].weight.requires_grad_(False)
    bias = model[1].bias
    sparsify_(model, HALF)
    densify_(model.to(torch.float64))
    assert [layer.training for layer in model] == [False] * 4
    assert [layer.weight.requires_grad for layer in model] == [False, False, True, True]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    assert model[1].bias is bias


def test_a_dense_state_dict_fits_a_densified_model():
    model = mixed_model()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    sparsify_(model, HALF)
    densify_(model)
    assert model.state_dict().keys() == state.keys()
    model.load_state_dict(state)


def test_a_layer_used_under_two_names_becomes_one_plain_layer_under_both():
    shared = nn.Linear(8, 8)
    model = nn.ModuleDict({"first": shared, "second": nn.Sequential(shared)})
    sparsify_(model, HALF)
    densify_(model)
    assert type(model["first"]) is nn.Linear
    assert model["first"] is model["second"][0]


def test_a_densified_model_trains_every_weight():
    model = nn.Sequential(nn.Linear(8, 8))
    sparsify_(model, HALF)
    densify_(model)
    model(torch.randn(4, 8)).square().sum().backward()
    assert model[0].weight.grad.ne(0).all()


def test_a_model_without_sparse_layers_is_refused():
    with pytest.raises(SparsityError, match="no sparse layer to densify; call sparsify_ first"):
        densify_(nn.Sequential(nn.Linear(8, 8)))


def test_layers_that_were_left_dense_are_the_same_objects_after_a_round_trip():
    model = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 8))
    stem = model[0]
    sparsify_(model, HALF)
    densify_(model)
    assert model[0] is stem
    assert not block_sparse_layers(model)


def test_a_densified_model_keeps_nothing_of_the_sparse_one():
    model = nn.Sequential(nn.Linear(16, 16))
    sparsify_(model, BlockSparsity(0.5, block=4))
    densify_(model)
    assert not model._load_state_dict_pre_hooks
