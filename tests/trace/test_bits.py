"""Zero patterns as packed bits."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acf.errors import TraceError
from acf.trace import BitTensor


@given(st.lists(st.integers(0, 5), min_size=0, max_size=3).map(tuple), st.integers(0, 2**32 - 1))
def test_a_pattern_survives_packing(shape: tuple[int, ...], seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 2, size=shape)
    bits = BitTensor.from_array(values)
    assert bits.shape == shape
    assert np.array_equal(bits.to_bool(), values != 0)
    assert bits.nonzeros == int(values.sum())


def test_torch_tensors_and_arrays_give_the_same_pattern() -> None:
    values = torch.tensor([[0.0, -1.5, float("nan")], [0.0, 0.0, 1e-30]], dtype=torch.float64)
    bits = BitTensor.from_array(values)
    assert bits.to_bool().tolist() == [[False, True, True], [False, False, True]]
    assert np.array_equal(bits.packed, BitTensor.from_array(values.numpy()).packed)


def test_a_pattern_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(TraceError, match=r"shape \[3, 5\] needs 2 bytes, 3 of uint8"):
        BitTensor((3, 5), np.zeros(3, dtype=np.uint8))


def test_the_density_of_nothing_is_zero() -> None:
    assert BitTensor.from_array(np.zeros((0, 4))).density == 0.0
