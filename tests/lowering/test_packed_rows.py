"""Rows of bits in words: nothing lost, columns counted exactly."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acf.lowering import PackedRows


@given(st.integers(0, 600), st.integers(0, 200), st.floats(0, 1), st.integers(0, 999))
def test_packing_keeps_every_bit_and_counts_every_column(rows: int, length: int, density: float, seed: int) -> None:
    pattern = np.random.default_rng(seed).random((rows, length)) < density
    packed = PackedRows.from_bool(pattern)
    assert (packed.rows, packed.length, packed.nonzeros) == (rows, length, pattern.sum())
    assert np.array_equal(packed.to_bool(), pattern)
    assert np.array_equal(packed.column_counts, pattern.sum(axis=0))
