"""Norms of weight-gradient blocks against those of the dense weight gradient."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from acf.ops import Conv2dGeometry, block_conv2d_gradient_norms, block_gradient_norms, reference
from acf.sparse import conv_weight_to_matrix

FLOAT32 = {"rtol": 1e-5, "atol": 1e-6}  # the norms are float32


def frobenius_norms(dense: Tensor, block: tuple[int, int]) -> Tensor:
    """The norms of all blocks of a matrix, written without the code under test."""
    rows = [strip.split(block[1], dim=1) for strip in dense.split(block[0], dim=0)]
    return torch.stack([torch.stack([tile.square().sum().sqrt() for tile in row]) for row in rows])


def some_blocks(grid: tuple[int, int], count: int) -> tuple[Tensor, Tensor]:
    flat = torch.randperm(grid[0] * grid[1])[:count].int()
    return flat // grid[1], flat % grid[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("batch", [(7,), (2, 3)], ids=str)
@pytest.mark.parametrize("block", [(2, 3), (4, 1), (8, 6)], ids=str)
def test_linear_norms_are_those_of_the_dense_gradient(block, batch, dtype):
    output_grad, x = torch.randn(*batch, 8, dtype=dtype), torch.randn(*batch, 6, dtype=dtype)
    grid = (8 // block[0], 6 // block[1])
    rows, cols = some_blocks(grid, count=(grid[0] * grid[1] + 1) // 2)
    norms = block_gradient_norms(output_grad, x, rows, cols, block)
    expected = frobenius_norms(torch.einsum("...o,...i->oi", output_grad, x), block)[rows, cols]
    assert norms.dtype == torch.float32
    torch.testing.assert_close(norms, expected.float(), **FLOAT32)


@given(
    grid=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    block=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    count=st.integers(0, 16),
    seed=st.integers(0, 2**31),
)
def test_linear_norms_of_any_blocks_in_any_order_are_those_of_the_dense_gradient(grid, block, count, seed):
    torch.manual_seed(seed)
    output_grad, x = torch.randn(5, grid[0] * block[0]), torch.randn(5, grid[1] * block[1])
    rows, cols = some_blocks(grid, count)
    norms = block_gradient_norms(output_grad, x, rows, cols, block)
    torch.testing.assert_close(norms, frobenius_norms(output_grad.T @ x, block)[rows, cols], **FLOAT32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "geometry",
    [
        Conv2dGeometry((3, 3), padding=(1, 1)),
        Conv2dGeometry((1, 1)),
        Conv2dGeometry((2, 3), stride=(2, 1), padding=(0, 2), dilation=(1, 2)),
        Conv2dGeometry((3, 2), stride=(1, 2), padding=(1, 0), dilation=(2, 1)),
    ],
    ids=["padded", "one tap", "uneven", "uneven the other way"],
)
def test_convolution_norms_are_those_of_the_dense_gradient(geometry, dtype):
    x = torch.randn(2, 6, 7, 5, dtype=dtype)
    weight = torch.randn(4, 6, *geometry.kernel_size, dtype=dtype, requires_grad=True)
    y = torch.nn.functional.conv2d(x, weight, None, geometry.stride, geometry.padding, geometry.dilation)
    output_grad = torch.randn_like(y)
    y.backward(output_grad)
    block = (2, 3)
    expected = frobenius_norms(conv_weight_to_matrix(weight.grad), block)
    rows, cols = some_blocks((expected.shape[0], expected.shape[1]), count=expected.numel() - 1)
    norms = block_conv2d_gradient_norms(output_grad, x, rows, cols, block, geometry)
    assert norms.dtype == torch.float32
    torch.testing.assert_close(norms, expected[rows, cols].float(), **FLOAT32)


def test_no_candidate_gives_no_norm():
    none = torch.zeros(0, dtype=torch.int32)
    assert block_gradient_norms(torch.randn(3, 4), torch.randn(3, 4), none, none, (2, 2)).shape == (0,)
    x, output_grad = torch.randn(1, 4, 3, 3), torch.randn(1, 4, 3, 3)
    norms = block_conv2d_gradient_norms(output_grad, x, none, none, (2, 2), Conv2dGeometry((1, 1)))
    assert norms.shape == (0,)


class LargestResult(TorchDispatchMode):
    """Notes the most elements any floating-point result had."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.is_floating_point():
            self.elements = max(self.elements, result.numel())
        return result


def test_no_more_than_one_block_row_of_the_dense_gradient_exists_at_a_time():
    rows, cols = torch.nonzero(torch.ones(16, 16), as_tuple=True)
    output_grad, x = torch.randn(2, 64), torch.randn(2, 64)
    with LargestResult() as largest:
        reference.gradient_norms(output_grad, x, rows.int(), cols.int(), (4, 4))
    assert largest.elements == 4 * 64
