"""Cutting a matrix into blocks, and packing and unpacking them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from acf.errors import SparsityError
from acf.sparse import BlockLayout, conv_weight_to_matrix, matrix_to_conv_weight

sides = st.integers(1, 5)
layouts = st.builds(
    lambda grid_rows, grid_cols, height, width: BlockLayout(grid_rows * height, grid_cols * width, height, width),
    sides,
    sides,
    sides,
    sides,
)


@st.composite
def layouts_with_blocks(draw: st.DrawFn) -> tuple[BlockLayout, Tensor, Tensor]:
    """A layout and some of its blocks, each once, in any order."""
    layout = draw(layouts)
    blocks = draw(st.lists(st.integers(0, layout.block_count - 1), unique=True))
    flat = torch.tensor(blocks, dtype=torch.int32)
    return layout, flat // layout.grid_cols, flat % layout.grid_cols


def numbered_matrix(layout: BlockLayout) -> Tensor:
    """A matrix whose elements are all different and none is zero."""
    return torch.arange(1.0, layout.rows * layout.cols + 1).reshape(layout.rows, layout.cols)


@given(layouts_with_blocks())
def test_unpacking_packed_blocks_gives_the_matrix_with_the_other_blocks_zero(case):
    layout, rows, cols = case
    dense = numbered_matrix(layout)
    expected = torch.zeros_like(dense)
    for row, col in zip(rows.tolist(), cols.tolist(), strict=True):
        window = (
            slice(row * layout.block_height, (row + 1) * layout.block_height),
            slice(col * layout.block_width, (col + 1) * layout.block_width),
        )
        expected[window] = dense[window]
    assert torch.equal(layout.unpack(layout.pack(dense, rows, cols), rows, cols), expected)


@given(layouts_with_blocks())
def test_packing_an_unpacked_matrix_gives_the_same_blocks_in_the_same_slots(case):
    layout, rows, cols = case
    packed = torch.arange(1.0, rows.numel() * layout.block_elements + 1)
    packed = packed.reshape(-1, layout.block_height, layout.block_width)
    assert torch.equal(layout.pack(layout.unpack(packed, rows, cols), rows, cols), packed)


def test_a_slot_holds_the_block_it_names_with_its_rows_and_columns_in_order():
    layout = BlockLayout(rows=4, cols=6, block_height=2, block_width=3)
    packed = layout.pack(numbered_matrix(layout), torch.tensor([1, 0]), torch.tensor([0, 1]))
    assert packed.tolist() == [[[13, 14, 15], [19, 20, 21]], [[4, 5, 6], [10, 11, 12]]]


@given(layouts)
def test_all_blocks_together_are_the_whole_matrix(layout):
    dense = numbered_matrix(layout)
    rows, cols = torch.nonzero(torch.ones(layout.grid_rows, layout.grid_cols), as_tuple=True)
    packed = layout.pack(dense, rows, cols)
    assert packed.shape == (layout.block_count, layout.block_height, layout.block_width)
    assert torch.equal(layout.unpack(packed, rows, cols), dense)


def test_gradients_flow_through_pack_and_unpack():
    layout = BlockLayout(rows=4, cols=4, block_height=2, block_width=2)
    rows, cols = torch.tensor([0, 1]), torch.tensor([1, 1])
    packed = torch.randn(2, 2, 2, requires_grad=True)
    layout.unpack(packed, rows, cols).mul(numbered_matrix(layout)).sum().backward()
    assert torch.equal(packed.grad, layout.pack(numbered_matrix(layout), rows, cols))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_block_norms_are_the_frobenius_norms_in_float32_whatever_the_weights_are(dtype):
    layout = BlockLayout(rows=2, cols=6, block_height=2, block_width=3)
    dense = torch.tensor([[3.0, 0, 0, 1, 1, 1], [0, 4.0, 0, 1, 0, 0]], dtype=dtype)
    norms = layout.block_norms(dense)
    assert norms.dtype == torch.float32
    assert norms.tolist() == [[5.0, 2.0]]


@pytest.mark.parametrize(
    ("shape", "block", "message"),
    [
        ((100, 64), (48, 16), "block 48 does not divide 100 rows"),
        ((64, 100), (16, 48), "block 48 does not divide 100 columns"),
        ((64, 64), (0, 16), "block 0 does not divide 64 rows"),
        ((64, 64), (16, -16), "block -16 does not divide 64 columns"),
        ((0, 64), (16, 16), "block 16 does not divide 0 rows"),
    ],
)
def test_a_layout_that_its_block_does_not_divide_is_refused_with_the_remedy(shape, block, message):
    with pytest.raises(SparsityError, match=f"{message}; use a block that does"):
        BlockLayout(*shape, *block)


@given(st.tuples(*[st.integers(1, 4)] * 4))
def test_a_convolution_weight_survives_the_trip_to_a_matrix_and_back(shape):
    weight = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    matrix = conv_weight_to_matrix(weight)
    assert matrix.shape == (shape[0], shape[1] * shape[2] * shape[3])
    assert torch.equal(matrix_to_conv_weight(matrix, shape[2:]), weight)


def test_the_columns_of_a_convolution_matrix_are_the_channels_of_one_tap_after_another():
    weight = torch.randn(2, 3, 2, 2)
    matrix = conv_weight_to_matrix(weight)
    assert torch.equal(matrix[:, 0:3], weight[:, :, 0, 0])
    assert torch.equal(matrix[:, 3:6], weight[:, :, 0, 1])
    assert torch.equal(matrix[:, 6:9], weight[:, :, 1, 0])


def test_matrices_of_unequal_height_are_no_stack():
    with pytest.raises(SparsityError, match="64 rows are not 3 matrices of one shape; give equal ones"):
        BlockLayout(64, 64, 16, 16, stacked=3)
