"""The sparse layers as drop-in replacements: padding, precision, copies, and moving blocks."""

import copy

import pytest
import torch
from torch import nn

from acf.masks import Move
from acf.nn import BlockSparsity, sparsify_

EXACT = {"rtol": 1e-12, "atol": 1e-12}
HALF = BlockSparsity(sparsity=0.5, block=4, rescale=False)


def sparse_and_masked(dense: nn.Module, masked_dense) -> tuple[nn.Module, nn.Module]:
    """A sparse layer in float64 and the dense layer with the same blocks."""
    model = nn.Sequential(dense)
    original = copy.deepcopy(model)
    sparsify_(model, HALF)
    return model.double()[0], masked_dense(original, model).double()[0]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # of torch's own layer
@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 3, "padding": "same"},
        {"kernel_size": (2, 4), "padding": "same"},
        {"kernel_size": 3, "padding": "same", "dilation": 2},
        {"kernel_size": 3, "padding": "valid", "stride": 2},
        {"kernel_size": 3, "padding": (2, 1), "padding_mode": "reflect"},
        {"kernel_size": 3, "padding": (1, 2), "padding_mode": "replicate", "stride": 2},
        {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
        {"kernel_size": (3, 2), "padding": "same", "padding_mode": "reflect"},
        {"kernel_size": 3, "padding": 1, "dilation": (1, 2), "stride": (2, 1), "bias": False},
    ],
    ids=str,
)
def test_every_padding_mode_gives_what_the_masked_dense_convolution_gives(settings, masked_dense):
    sparse, expected = sparse_and_masked(nn.Conv2d(8, 4, **settings), masked_dense)
    x = torch.randn(2, 8, 7, 6, dtype=torch.float64, requires_grad=True)
    x_dense = x.detach().clone().requires_grad_()
    y, y_dense = sparse(x), expected(x_dense)
    torch.testing.assert_close(y, y_dense, **EXACT)
    output_grad = torch.randn_like(y)
    y.backward(output_grad)
    y_dense.backward(output_grad)
    torch.testing.assert_close(x.grad, x_dense.grad, **EXACT)


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect"])
def test_a_convolution_takes_an_input_without_a_batch(padding_mode, masked_dense):
    dense = nn.Conv2d(8, 4, 3, padding=1, padding_mode=padding_mode)
    sparse, expected = sparse_and_masked(dense, masked_dense)
    x = torch.randn(8, 5, 6, dtype=torch.float64)
    assert sparse(x).shape == (4, 5, 6)
    torch.testing.assert_close(sparse(x), expected(x), **EXACT)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (0,)], ids=str)
def test_a_linear_layer_takes_any_number_of_batch_dimensions(batch, masked_dense):
    sparse, expected = sparse_and_masked(nn.Linear(8, 12), masked_dense)
    x = torch.randn(*batch, 8, dtype=torch.float64)
    torch.testing.assert_close(sparse(x), expected(x), **EXACT)


@pytest.mark.parametrize(
    "make_dense", [lambda: nn.Linear(8, 8), lambda: nn.Conv2d(8, 8, 3, padding=1)], ids=["Linear", "Conv2d"]
)
def test_bias_and_weight_gradients_are_those_of_the_masked_dense_layer(make_dense, masked_dense):
    sparse, expected = sparse_and_masked(make_dense(), masked_dense)
    x = torch.randn(3, 8, 8, 8, dtype=torch.float64)
    output_grad = torch.randn_like(expected(x))
    sparse(x).backward(output_grad)
    expected(x).backward(output_grad)
    torch.testing.assert_close(sparse.bias.grad, expected.bias.grad, **EXACT)
    matrix = expected.weight.grad
    if matrix.dim() == 4:
        matrix = matrix.permute(0, 2, 3, 1).flatten(1)
    blocks = sparse.layout.blocks(matrix)
    for slot, (row, col) in enumerate(zip(sparse.block_rows, sparse.block_cols, strict=True)):
        torch.testing.assert_close(sparse.weight.grad[slot], blocks[row, col], **EXACT)


def test_casting_a_model_casts_the_weights_and_leaves_the_topology_alone():
    model = nn.Sequential(nn.Linear(8, 8))
    sparsify_(model, HALF)
    before = copy.deepcopy(model[0].topology)
    model.to(torch.float64)
    assert model[0].weight.dtype == torch.float64
    for old, new in zip(before, model[0].topology, strict=True):
        assert new.dtype == torch.int32
        assert torch.equal(old, new)
    assert model(torch.randn(2, 8, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(
    ("make_dense", "shape"),
    [
        (lambda: nn.Linear(8, 8), (4, 8)),
        (lambda: nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"), (2, 8, 5, 5)),
    ],
    ids=["Linear", "Conv2d"],
)
def test_under_autocast_a_layer_computes_in_bfloat16_as_torch_does_and_keeps_float32_gradients(
    make_dense, shape, masked_dense
):
    model = nn.Sequential(make_dense())
    original = copy.deepcopy(model)
    sparsify_(model, HALF)
    expected = masked_dense(original, model)
    x = torch.randn(shape)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, y_dense = model(x), expected(x)
    assert y.dtype == y_dense.dtype == torch.bfloat16
    torch.testing.assert_close(y, y_dense, rtol=2**-7, atol=2**-7)  # two roundings to 8 bits instead of one
    y.sum().backward()
    assert model[0].weight.grad.dtype == model[0].bias.grad.dtype == torch.float32


def test_under_autocast_a_float64_layer_stays_in_float64_as_torch_keeps_it():
    model = nn.Sequential(nn.Linear(8, 8))
    sparsify_(model, HALF)
    model.double()
    x = torch.randn(2, 8, dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nn.Linear(8, 8).double()(x).dtype == torch.float64
        assert model(x).dtype == torch.float64


def one_block_swap(layer: nn.Module) -> Move:
    """Give slot 0 to the first absent block."""
    rows, cols = torch.nonzero(~layer.mask(), as_tuple=True)
    return Move(slots=torch.tensor([0]), new_rows=rows[:1], new_cols=cols[:1])


def test_a_deep_copy_has_its_own_weights_and_its_own_topology():
    model = nn.Sequential(nn.Linear(8, 8))
    sparsify_(model, HALF)
    x = torch.randn(3, 8)
    expected = model(x)
    copied = copy.deepcopy(model)
    model[0].move_blocks(one_block_swap(model[0]))
    assert torch.equal(copied(x), expected)
    assert not torch.equal(copied[0].mask(), model[0].mask())


def test_moving_blocks_gives_the_slot_to_the_new_block_at_zero_and_leaves_the_others():
    model = nn.Sequential(nn.Linear(8, 8))
    sparsify_(model, HALF)
    layer = model[0]
    layer(torch.randn(3, 8)).sum().backward()
    parameter, weight, gradient = layer.weight, layer.weight.detach().clone(), layer.weight.grad.clone()
    move = one_block_swap(layer)
    old = (int(layer.block_rows[0]), int(layer.block_cols[0]))
    layer.move_blocks(move)
    assert layer.weight is parameter
    assert layer.mask().sum() == layer.present_blocks == 2
    assert layer.mask()[move.new_rows, move.new_cols].all()
    assert not layer.mask()[old]
    assert not layer.weight[0].any()
    assert not layer.weight.grad[0].any()
    assert torch.equal(layer.weight[1], weight[1])
    assert torch.equal(layer.weight.grad[1], gradient[1])


def test_after_a_move_the_outputs_are_those_of_the_new_weight_matrix():
    model = nn.Sequential(nn.Linear(8, 8, bias=False))
    sparsify_(model, HALF)
    layer = model.double()[0]
    layer.move_blocks(one_block_swap(layer))
    with torch.no_grad():
        layer.weight.normal_()
    x = torch.randn(3, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x), x @ layer.weight_matrix().T, **EXACT)


def test_moving_blocks_writes_the_topology_in_place_so_that_compiled_graphs_keep_their_buffers():
    model = nn.Sequential(nn.Linear(8, 8))
    sparsify_(model, HALF)
    layer = model[0]
    addresses = [tensor.data_ptr() for tensor in layer.topology]
    layer.move_blocks(one_block_swap(layer))
    assert [tensor.data_ptr() for tensor in layer.topology] == addresses
