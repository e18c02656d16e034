"""Numbers in device memory are those of torch."""

import numpy as np
import pytest
import torch

from acf.runtime import numbers
from acf.runtime.errors import InvalidValueError


def test_bf16_rounds_as_torch_does() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 4096, dtype=np.uint64).astype(np.uint32)
    values = bits.view(np.float32)
    ours = numbers.round_to_bf16(values)
    torchs = torch.from_numpy(values.copy()).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(torchs))
    np.testing.assert_array_equal(ours[~np.isnan(ours)], torchs[~np.isnan(ours)])


@pytest.mark.parametrize("dtype", numbers.FORMATS)
def test_what_is_encoded_is_decoded_again(dtype: str) -> None:
    values = np.arange(-6, 6, dtype=np.float32).reshape(3, 4) / 4
    raw = numbers.encode(values, dtype)
    assert raw.size == values.size * numbers.FORMATS[dtype].itemsize
    np.testing.assert_array_equal(numbers.decode(raw, dtype, (3, 4)), values)


def test_an_unknown_dtype_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidValueError, match="dtype 'fp8' is not one of fp32, bf16"):
        numbers.encode([1.0], "fp8")
