"""Which blocks are present, and the two orders in which kernels walk them."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from acf.errors import ArgumentError, TopologyError
from acf.sparse import BlockLayout, BlockTopology


@st.composite
def grids_with_blocks(draw: st.DrawFn) -> tuple[BlockLayout, list[tuple[int, int]]]:
    """A layout of up to 5 x 5 blocks and some of its blocks, each once, in any order of slots."""
    grid_rows, grid_cols = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    block = st.tuples(st.integers(0, grid_rows - 1), st.integers(0, grid_cols - 1))
    return BlockLayout(grid_rows * 2, grid_cols * 3, 2, 3), draw(st.lists(block, unique=True))


def build(layout: BlockLayout, blocks: list[tuple[int, int]]) -> BlockTopology:
    indices = torch.tensor(blocks, dtype=torch.int64).reshape(-1, 2)
    return BlockTopology.build(layout, indices[:, 0], indices[:, 1])


def groups(offsets: Tensor, slots: Tensor) -> list[list[int]]:
    bounds = offsets.tolist()
    return [slots[start:end].tolist() for start, end in pairwise(bounds)]


@given(grids_with_blocks())
def test_every_row_owns_its_slots_in_ascending_column_order(case):
    layout, blocks = case
    topology = build(layout, blocks)
    expected = [[blocks.index(block) for block in sorted(blocks) if block[0] == row] for row in range(layout.grid_rows)]
    assert groups(topology.row_offsets, topology.row_slots) == expected
    assert topology.row_offsets[-1] == len(blocks)


def test_stacked_matrices_have_columns_of_their_own():
    layout = BlockLayout(8, 6, 2, 3, stacked=2)
    blocks = [(3, 1), (0, 1), (2, 1), (1, 0), (2, 0)]
    topology = build(layout, blocks)
    of_first, of_second = [[3], [1]], [[4], [2, 0]]
    assert groups(topology.col_offsets, topology.col_slots) == of_first + of_second
    assert topology.row_slots.tolist() == [1, 3, 4, 2, 0]


@given(grids_with_blocks())
def test_every_column_owns_its_slots_in_ascending_row_order(case):
    layout, blocks = case
    topology = build(layout, blocks)
    expected = [[blocks.index(block) for block in sorted(blocks) if block[1] == col] for col in range(layout.grid_cols)]
    assert groups(topology.col_offsets, topology.col_slots) == expected
    assert topology.col_offsets[-1] == len(blocks)


@given(grids_with_blocks())
def test_slots_stay_where_the_caller_put_them(case):
    layout, blocks = case
    topology = build(layout, blocks)
    assert list(zip(topology.block_rows.tolist(), topology.block_cols.tolist(), strict=True)) == blocks


def test_empty_rows_and_columns_own_no_slot():
    layout = BlockLayout(rows=6, cols=8, block_height=2, block_width=2)
    topology = build(layout, [(2, 3), (2, 1)])
    assert topology.row_offsets.tolist() == [0, 0, 0, 2]
    assert topology.row_slots.tolist() == [1, 0]
    assert topology.col_offsets.tolist() == [0, 0, 1, 1, 2]
    assert topology.col_slots.tolist() == [1, 0]


def test_every_tensor_of_a_topology_is_int32():
    layout = BlockLayout(rows=4, cols=4, block_height=2, block_width=2)
    assert {tensor.dtype for tensor in build(layout, [(1, 0), (0, 1)])} == {torch.int32}


@given(grids_with_blocks())
def test_a_mask_survives_the_trip_to_a_topology_and_back(case):
    layout, blocks = case
    mask = torch.zeros(layout.grid_rows, layout.grid_cols, dtype=torch.bool)
    for row, col in blocks:
        mask[row, col] = True
    topology = BlockTopology.from_mask(layout, mask)
    assert torch.equal(topology.mask(layout), mask)
    assert torch.equal(build(layout, blocks).mask(layout), mask)
    assert list(zip(topology.block_rows.tolist(), topology.block_cols.tolist(), strict=True)) == sorted(blocks)


def test_a_block_named_twice_is_refused_with_the_remedy():
    layout = BlockLayout(rows=4, cols=4, block_height=2, block_width=2)
    with pytest.raises(TopologyError, match=r"named by two slots; .* rebuild the topology from a mask"):
        build(layout, [(0, 1), (1, 1), (0, 1)])


@pytest.mark.parametrize("block", [(2, 0), (0, 3), (-1, 0), (0, -1)])
def test_a_block_outside_the_grid_is_refused_by_its_position(block):
    layout = BlockLayout(rows=4, cols=6, block_height=2, block_width=2)
    with pytest.raises(TopologyError, match=rf"block \({block[0]}, {block[1]}\) lies outside the 2 x 3 grid"):
        build(layout, [(0, 0), block])


def test_rows_and_columns_of_different_lengths_are_refused():
    layout = BlockLayout(rows=4, cols=4, block_height=2, block_width=2)
    with pytest.raises(TopologyError, match=r"block_rows \(2,\) and block_cols \(1,\) must be two vectors"):
        BlockTopology.build(layout, torch.tensor([0, 1]), torch.tensor([0]))


@pytest.mark.parametrize("strange", [None, "x", [0]])
def test_indices_that_are_no_tensor_are_refused_by_name(strange):
    layout = BlockLayout(rows=4, cols=4, block_height=2, block_width=2)
    with pytest.raises(ArgumentError, match=r"block_cols is .*; pass a tensor with one index for each block"):
        BlockTopology.build(layout, torch.tensor([0]), strange)
