"""The block-sparse convolution against the dense one with a masked weight, in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from acf.ops import Conv2dGeometry, block_conv2d
from acf.sparse import BlockLayout, BlockTopology, conv_weight_to_matrix, matrix_to_conv_weight

EXACT = {"rtol": 1e-12, "atol": 1e-12}  # float64 sums of a few hundred products
GEOMETRIES = {
    "plain": Conv2dGeometry((3, 3)),
    "one tap": Conv2dGeometry((1, 1)),
    "padded": Conv2dGeometry((3, 3), padding=(1, 1)),
    "strided": Conv2dGeometry((3, 3), stride=(2, 2), padding=(1, 1)),
    "stride that leaves a rest": Conv2dGeometry((2, 2), stride=(3, 2)),
    "dilated": Conv2dGeometry((3, 3), dilation=(2, 2), padding=(2, 2)),
    "all uneven": Conv2dGeometry((3, 2), stride=(1, 2), padding=(0, 1), dilation=(2, 1)),
}


def assert_agrees_with_the_masked_dense_convolution(
    layout: BlockLayout, mask: Tensor, geometry: Conv2dGeometry, x: Tensor
) -> None:
    order = torch.randperm(int(mask.sum()))
    rows, cols = torch.nonzero(mask, as_tuple=True)
    topology = BlockTopology.build(layout, rows[order], cols[order])
    dense = torch.randn(layout.rows, x.shape[1], *geometry.kernel_size, dtype=torch.float64)
    elements = mask.repeat_interleave(layout.block_height, 0).repeat_interleave(layout.block_width, 1)
    x_dense = x.detach().clone().requires_grad_()
    x.requires_grad_()
    matrix = conv_weight_to_matrix(dense)
    weight = layout.pack(matrix, topology.block_rows, topology.block_cols).requires_grad_()
    dense.requires_grad_()

    y = block_conv2d(x, weight, topology, geometry)
    masked = dense * matrix_to_conv_weight(elements, geometry.kernel_size)
    expected = torch.nn.functional.conv2d(x_dense, masked, None, geometry.stride, geometry.padding, geometry.dilation)
    output_grad = torch.randn_like(expected)
    y.backward(output_grad)
    expected.backward(output_grad)

    torch.testing.assert_close(y, expected, **EXACT)
    torch.testing.assert_close(x.grad, x_dense.grad, **EXACT)
    expected_grad = layout.pack(conv_weight_to_matrix(dense.grad), topology.block_rows, topology.block_cols)
    torch.testing.assert_close(weight.grad, expected_grad, **EXACT)
    assert y.shape[2:] == geometry.output_size(x.shape[2], x.shape[3])


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES.keys())
def test_outputs_and_both_gradients_are_those_of_the_masked_dense_convolution(geometry, memory_format):
    taps = geometry.kernel_size[0] * geometry.kernel_size[1]
    layout = BlockLayout(rows=6, cols=8 * taps, block_height=2, block_width=4)
    mask = torch.rand(layout.grid_rows, layout.grid_cols) < 0.5
    mask[1] = False
    x = torch.randn(2, 8, 7, 6, dtype=torch.float64).to(memory_format=memory_format)
    assert_agrees_with_the_masked_dense_convolution(layout, mask, geometry, x)


@pytest.mark.parametrize("present", [0, 1, 18], ids=["no block", "one block", "full"])
def test_empty_single_and_full_masks_agree_with_the_masked_dense_convolution(present):
    layout = BlockLayout(rows=4, cols=2 * 9, block_height=4, block_width=1)
    mask = torch.zeros(layout.block_count, dtype=torch.bool)
    mask[torch.randperm(layout.block_count)[:present]] = True
    x = torch.randn(2, 2, 5, 4, dtype=torch.float64)
    geometry = Conv2dGeometry((3, 3), padding=(1, 1))
    assert_agrees_with_the_masked_dense_convolution(layout, mask.reshape(1, 18), geometry, x)


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(
    kernel_size=pairs,
    stride=pairs,
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    grid=pairs,
    block=pairs,
    seed=st.integers(0, 2**31),
)
def test_any_geometry_and_random_mask_agrees_with_the_masked_dense_convolution(
    kernel_size, stride, padding, dilation, grid, block, seed
):
    torch.manual_seed(seed)
    in_channels = grid[1] * block[1]
    layout = BlockLayout(grid[0] * block[0], in_channels * kernel_size[0] * kernel_size[1], *block)
    mask = torch.rand(layout.grid_rows, layout.grid_cols) < 0.5
    x = torch.randn(2, in_channels, 6, 7, dtype=torch.float64)
    geometry = Conv2dGeometry(kernel_size, stride, padding, dilation)
    assert_agrees_with_the_masked_dense_convolution(layout, mask, geometry, x)


def test_numerical_gradients_agree():
    layout = BlockLayout(rows=4, cols=2 * 4, block_height=2, block_width=2)
    topology = BlockTopology.build(layout, torch.tensor([1, 0, 1]), torch.tensor([0, 3, 2]))
    geometry = Conv2dGeometry((2, 2), stride=(2, 1), padding=(1, 0))
    x = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, weight: block_conv2d(x, weight, topology, geometry), (x, weight))


@pytest.mark.parametrize("wanted", ["input", "weight"])
def test_only_the_gradient_that_is_asked_for_is_computed(wanted, gradient_ops_of):
    layout = BlockLayout(rows=4, cols=4, block_height=2, block_width=2)
    topology = BlockTopology.build(layout, torch.tensor([1, 0]), torch.tensor([0, 0]))
    x = torch.randn(2, 4, 3, 3, requires_grad=wanted == "input")
    weight = torch.randn(2, 2, 2, requires_grad=wanted == "weight")
    ops = gradient_ops_of(lambda: block_conv2d(x, weight, topology, Conv2dGeometry((1, 1))).sum().backward())
    assert ops == {f"acf::block_conv2d_{wanted}_grad"}


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_bias_and_its_gradient_are_those_of_adding_it(memory_format):
    geometry = Conv2dGeometry((3, 2), stride=(2, 1), padding=(1, 0))
    topology = BlockTopology.build(BlockLayout(8, 24, 4, 4), torch.tensor([1, 0]), torch.tensor([3, 0]))
    x = torch.randn(2, 4, 6, 5, dtype=torch.float64).contiguous(memory_format=memory_format).requires_grad_()
    weight, bias = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 4, 4), (8,)))
    y = block_conv2d(x, weight, topology, geometry, bias)
    expected = block_conv2d(x, weight, topology, geometry) + bias[:, None, None]
    torch.testing.assert_close(y, expected)
    gradient, leaves = torch.randn_like(y), (x, weight, bias)
    for ours, theirs in zip(*(torch.autograd.grad(out, leaves, gradient) for out in (y, expected)), strict=True):
        torch.testing.assert_close(ours, theirs)
