"""Prefix sums: block counts of rows to row offsets."""

import numpy as np
import pytest

from acf.rtl.design.index.prefix_sum import PrefixSum, prefix_sums
from acf.rtl.tools.port_arrays import join_bits, split_bits


def test_prefix_sums_of_counts_are_row_offsets(simulate) -> None:
    check_prefix_sums(simulate, lanes=8)


@pytest.mark.parametrize("lanes", [1, 5])
def test_prefix_sums_need_no_power_of_two(interpret, lanes: int) -> None:
    check_prefix_sums(interpret, lanes)


def check_prefix_sums(simulate, lanes: int) -> None:
    counts = np.random.default_rng(2).integers(0, 256, (20, lanes))
    idle = np.zeros((1, lanes), dtype=np.int64)
    outputs = simulate(PrefixSum(lanes=lanes)).run(
        {
            "counts": join_bits(np.concatenate((counts, idle)), 8),
            "valid": [1] * 20 + [0],
            "clear": [1, *[0] * 20],
        }
    )
    expected = prefix_sums(counts.reshape(-1))
    np.testing.assert_array_equal(split_bits(outputs["offsets"][1:], 24, lanes).reshape(-1), expected[:-1])
    assert outputs["total"][-1] == expected[-1]
    assert outputs["offsets_valid"].tolist() == [0] + [1] * 20
