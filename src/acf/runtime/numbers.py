"""Numbers as they lie in device memory: fp32 and bf16, little-endian."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acf.runtime.errors import InvalidValueError

Values = NDArray[np.float32]
Bytes = NDArray[np.uint8]

QUIET_NAN = 0x7FC0


def to_bf16_bits(values: ArrayLike) -> NDArray[np.uint16]:
    """Numbers as bfloat16 bits, rounded to the nearest, ties to even; every NaN becomes the quiet one.

    >>> [hex(bits) for bits in to_bf16_bits([1.0, -2.5])]
    ['0x3f80', '0xc020']
    """
    numbers = np.ascontiguousarray(values, dtype=np.float32)
    wide = numbers.view(np.uint32)
    rounded = (wide + (np.uint32(0x7FFF) + ((wide >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    return np.where(np.isnan(numbers), np.uint32(QUIET_NAN), rounded).astype(np.uint16)


def from_bf16_bits(bits: NDArray[np.uint16]) -> Values:
    """The numbers that bfloat16 bits stand for."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def round_to_bf16(values: ArrayLike) -> Values:
    """Numbers rounded to bfloat16, as float32."""
    return from_bf16_bits(to_bf16_bits(values))


class NumberFormat(NamedTuple):
    """How a number lies in memory: its bytes, and the conversions from and to float32 arrays."""

    itemsize: int
    encode: Callable[[Any], NDArray[Any]]
    decode: Callable[[Bytes], Values]


FORMATS: dict[str, NumberFormat] = {
    "fp32": NumberFormat(4, lambda values: np.ascontiguousarray(values, dtype="<f4"), lambda raw: raw.view("<f4")),
    "bf16": NumberFormat(2, to_bf16_bits, lambda raw: from_bf16_bits(raw.view("<u2"))),
}
"""The formats of operands and results."""


def number_format(name: str) -> NumberFormat:
    """The format of that name."""
    if name not in FORMATS:
        raise InvalidValueError(f"dtype {name!r} is not one of {', '.join(FORMATS)}; use one of these")
    return FORMATS[name]


def encode(values: ArrayLike, dtype: str) -> Bytes:
    """The bytes of an array, row-major."""
    return number_format(dtype).encode(values).reshape(-1).view(np.uint8)


def decode(raw: Bytes, dtype: str, shape: tuple[int, ...]) -> Values:
    """The array that bytes stand for, float32 of ``shape``."""
    return number_format(dtype).decode(np.ascontiguousarray(raw)).reshape(shape)
