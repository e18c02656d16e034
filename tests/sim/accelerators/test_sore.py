"""SAT's reduction engine, exact against a sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acf.errors import AcfError
from acf.sim.accelerators.sore import reduce_groups


@given(st.integers(0, 80), st.integers(1, 16), st.data(), st.integers(0, 999))
def test_the_engine_keeps_what_a_sort_keeps(groups: int, group_size: int, data: st.DataObject, seed: int) -> None:
    kept = data.draw(st.integers(1, group_size))
    values = np.random.default_rng(seed).integers(-5, 6, (groups, group_size)).astype(float)  # ties on purpose
    reduced = reduce_groups(values, kept, group_size)
    largest = np.argsort(-np.abs(values), axis=1, kind="stable")[:, :kept]
    assert np.array_equal(reduced.indices, largest)  # B5
    assert np.array_equal(reduced.values, np.take_along_axis(values, largest, axis=1))
    assert reduced.cycles == -(-groups // 32) * group_size  # B5: 32 lanes, M cycles per group


@pytest.mark.parametrize(
    ("kept", "group_size", "message"),
    [
        (5, 4, "5 of 4 cannot be kept"),
        (0, 4, "0 of 4 cannot be kept"),
        (2, 8, "group_size 8 does not divide 12 values"),
    ],
)
def test_groups_that_cannot_be_are_refused(kept: int, group_size: int, message: str) -> None:
    with pytest.raises(AcfError, match=message):
        reduce_groups(np.ones(12), kept, group_size)
