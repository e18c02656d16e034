"""Weights by blocks, and what products refuse."""

import numpy as np
import pytest

from acf import runtime
from acf.trace.op import TracedConv
from tests.runtime.products import FILTERS, SPARSE


def test_blocks_in_any_order_make_the_same_matrix() -> None:
    order = np.array([2, 0, 3, 1])
    mixed = runtime.WeightBlocks(16, 24, (8, 8), SPARSE.block_rows[order], SPARSE.block_columns[order])
    blocks = np.random.default_rng(0).standard_normal(SPARSE.shape).astype(np.float32)
    matrix = SPARSE.to_matrix(blocks)
    np.testing.assert_array_equal(mixed.to_matrix(blocks[order]), matrix)
    np.testing.assert_array_equal(SPARSE.from_matrix(matrix), blocks)
    assert (matrix != 0).sum() == SPARSE.kept.sum() == 4 * 64


def test_a_dense_weight_is_one_block() -> None:
    dense = runtime.WeightBlocks.dense(3, 5)
    assert (dense.shape, dense.is_dense, SPARSE.is_dense) == ((1, 3, 5), True, False)


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [([0, 0], [0, 0], "repeat or leave"), ([2], [0], "repeat or leave"), ([0], [0, 1], "two vectors of one length")],
)
def test_blocks_that_are_no_topology_are_refused(rows: list[int], columns: list[int], message: str) -> None:
    with pytest.raises(runtime.InvalidValueError, match=message):
        runtime.WeightBlocks(16, 16, (8, 8), np.array(rows), np.array(columns))


def test_a_block_that_does_not_divide_the_weight_is_refused() -> None:
    with pytest.raises(runtime.InvalidValueError, match="blocks of 8 x 8 do not divide a weight of 16 x 20"):
        runtime.WeightBlocks(16, 20, (8, 8), np.array([0]), np.array([0]))


def test_products_that_no_device_runs_are_refused_by_name() -> None:
    with pytest.raises(runtime.InvalidValueError, match="phase 'backward' is not one of forward"):
        runtime.Product(phase="backward", rows=1, weight=SPARSE)
    grouped = TracedConv(input_size=(4, 4), kernel_size=(3, 2), groups=2)
    with pytest.raises(runtime.NotSupportedError, match="a convolution of 2 groups has no program"):
        runtime.Product(phase="forward", rows=1, weight=FILTERS, conv=grouped)
    with pytest.raises(runtime.InvalidValueError, match="does not divide into the 9 taps"):
        runtime.Product(phase="forward", rows=1, weight=SPARSE, conv=TracedConv(input_size=(4, 4), kernel_size=(3, 3)))
