"""Columns with relative indices: what goes in comes out, and long gaps cost padding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acf.errors import AcfError
from acf.sparse.relative_csc import count_entries, encode_columns


@given(st.integers(0, 9), st.integers(0, 90), st.integers(1, 6), st.floats(0, 1), st.integers(0, 999))
def test_columns_survive_encoding(columns: int, length: int, index_bits: int, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(columns, length)) * (rng.random((columns, length)) < density)
    encoded = encode_columns(dense, index_bits)
    assert np.array_equal(encoded.decode(), dense)
    assert encoded.values.size == np.count_nonzero(dense) + encoded.padding
    assert encoded.skips.max(initial=0) < 2**index_bits
    assert count_entries(dense != 0, index_bits) == encoded.values.size


def test_a_gap_longer_than_the_index_is_bridged_by_stored_zeros() -> None:
    column = np.zeros((1, 600))
    column[0, 599] = 3.0
    encoded = encode_columns(column, index_bits=8)
    # Two padding entries skip 255 zeros and are one themselves: 512 of the 599 zeros; 87 are left for the value.
    assert encoded.values.tolist() == [0.0, 0.0, 3.0]
    assert encoded.skips.tolist() == [255, 255, 87]


def test_an_empty_column_and_a_tail_of_zeros_take_no_entry() -> None:
    encoded = encode_columns(np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), index_bits=1)
    assert encoded.starts.tolist() == [0, 0, 1]


def test_counting_in_pieces_is_counting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = np.random.default_rng(0).random((40, 50)) < 0.05
    whole = count_entries(pattern, 2)
    monkeypatch.setattr("acf.sparse.relative_csc._ELEMENTS_AT_ONCE", 70)
    assert count_entries(pattern, 2) == whole == encode_columns(pattern.astype(float), 2).values.size


@pytest.mark.parametrize("index_bits", [0, 17])
def test_an_index_of_impossible_width_is_refused(index_bits: int) -> None:
    with pytest.raises(AcfError, match=f"index_bits {index_bits} is not within 1 to 16"):
        encode_columns(np.zeros((1, 1)), index_bits)
