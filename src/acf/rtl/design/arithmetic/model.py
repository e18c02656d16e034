"""What the arithmetic units compute, in integers alone: bit patterns in, bit patterns out, whole arrays at a time."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bits = NDArray[np.int64]

QUIET_NAN = 0x7FC00000
INFINITY = 0x7F800000
SIGN = 0x80000000


def multiply_bf16(a: ArrayLike, b: ArrayLike) -> NDArray[np.uint32]:
    """Bits of the float32 product of bfloat16 bits ``a`` and ``b`` (uint16); exact, since 8 x 8 bits fit in 24.

    >>> multiply_bf16(0x4040, 0xC000).tolist() == 0xC0C00000  # 3 x -2
    True
    """
    left, right = np.broadcast_arrays(np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64))
    exponents = [(bits >> 7) & 0xFF for bits in (left, right)]
    fractions = [bits & 0x7F for bits in (left, right)]
    sign = ((left ^ right) & 0x8000) << 16
    product = (fractions[0] | 0x80) * (fractions[1] | 0x80)
    carry = product >> 15
    exponent = exponents[0] + exponents[1] - 127 + carry
    fraction = np.where(carry == 1, (product & 0x7FFF) << 8, (product & 0x3FFF) << 9)
    result = sign | (exponent << 23) | fraction
    result = np.where(exponent >= 255, sign | INFINITY, result)
    is_zero = [each == 0 for each in exponents]
    result = np.where((exponent <= 0) | is_zero[0] | is_zero[1], sign, result)
    is_special = [each == 255 for each in exponents]
    result = np.where(is_special[0] | is_special[1], sign | INFINITY, result)
    is_nan = [special & (fraction != 0) for special, fraction in zip(is_special, fractions, strict=True)]
    zero_by_infinity = (is_special[0] & is_zero[1]) | (is_special[1] & is_zero[0])
    return np.where(is_nan[0] | is_nan[1] | zero_by_infinity, QUIET_NAN, result).astype(np.uint32)


def add_fp32(x: ArrayLike, y: ArrayLike) -> NDArray[np.uint32]:
    """Bits of the rounded sum of float32 bits ``x`` and ``y`` (uint32).

    >>> add_fp32(0x3F800000, 0x33800000).tolist() == 0x3F800000  # 1 + 2 ** -24: a tie, to even
    True
    """
    one, other = np.broadcast_arrays(np.asarray(x, dtype=np.int64), np.asarray(y, dtype=np.int64))
    swap = (other & 0x7FFFFFFF) > (one & 0x7FFFFFFF)
    large, small = np.where(swap, other, one), np.where(swap, one, other)
    large_exponent, small_exponent = (large >> 23) & 0xFF, (small >> 23) & 0xFF
    subtract = (large ^ small) & SIGN != 0
    total = _aligned_total(_significand(large), _significand(small), large_exponent - small_exponent, subtract)
    result = _rounded(large & SIGN, large_exponent, total)
    both_zero = (large_exponent == 0) & (small_exponent == 0)
    result = np.where(both_zero, large & small & SIGN, result)
    result = np.where((total == 0) & ~both_zero, 0, result)
    result = np.where(large_exponent == 255, (large & SIGN) | INFINITY, result)
    is_nan = [(bits & 0x7FFFFFFF) > INFINITY for bits in (large, small)]
    opposite_infinities = (large_exponent == 255) & (small_exponent == 255) & subtract
    return np.where(is_nan[0] | is_nan[1] | opposite_infinities, QUIET_NAN, result).astype(np.uint32)


def add_flushed(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """`add_fp32` by NumPy's floats: rounded to the nearest, subnormals flushed to zero; NaN keeps its payload."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = one + other
    return np.where(np.abs(total) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), total), total)


def multiply_flushed(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """The float32 product by NumPy's floats: to the nearest, then flushed to zero below the least normal number.

    Float64 holds a product exactly. Rounded to 24 bits, it reaches the least normal number from half a place below on.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        exact = one.astype(np.float64) * other.astype(np.float64)
        product = exact.astype(np.float32)
    least = float(np.finfo(np.float32).tiny) * (1 - 2.0**-25)
    return np.where(np.abs(exact) < least, np.copysign(np.float32(0), product), product)


def is_effectual(a: ArrayLike, b: ArrayLike) -> NDArray[np.bool_]:
    """Whether neither of two bfloat16 bit patterns is a zero or a subnormal, which counts as one."""
    left, right = (np.asarray(each, dtype=np.int64) & 0x7F80 for each in (a, b))
    effectual: NDArray[np.bool_] = np.logical_and(left != 0, right != 0)
    return effectual


def bf16_bits(values: ArrayLike) -> NDArray[np.uint16]:
    """Numbers as bfloat16 bits, rounded to the nearest, ties to even; NaN becomes the quiet one.

    >>> [hex(bits) for bits in bf16_bits([1.0, -2.5])]
    ['0x3f80', '0xc020']
    """
    numbers = np.asarray(values, dtype=np.float32)
    wide = numbers.view(np.uint32).astype(np.int64)
    rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16
    return np.where(np.isnan(numbers), QUIET_NAN >> 16, rounded).astype(np.uint16)


def bf16_values(bits: ArrayLike) -> NDArray[np.float32]:
    """The numbers that bfloat16 bits stand for."""
    wide: NDArray[np.uint32] = np.asarray(bits).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)


def _significand(bits: Bits) -> Bits:
    """24 bits with the leading one, and three more below for rounding; 0 for what counts as zero."""
    significand: Bits = np.where((bits >> 23) & 0xFF == 0, 0, ((bits & 0x7FFFFF) | 0x800000) << 3)
    return significand


def _aligned_total(large: Bits, small: Bits, shift: Bits, subtract: NDArray[np.bool_]) -> Bits:
    """Sum or difference of two significands; what is shifted out of the smaller stays as its lowest bit."""
    distance = np.minimum(shift, 27)
    shifted = small >> distance
    lost = (shifted << distance) != small
    aligned: Bits = shifted | lost
    return np.where(subtract, large - aligned, large + aligned)


def _rounded(sign: Bits, exponent: Bits, total: Bits) -> Bits:
    """Normalise ``total`` of 28 bits to 27, round to 24, and put a float32 together."""
    carry = total >> 27
    narrowed = np.where(carry == 1, (total >> 1) | (total & 1), total)
    exponent = exponent + carry
    for step in (16, 8, 4, 2, 1):
        is_short = narrowed >> (27 - step) == 0
        narrowed = np.where(is_short, narrowed << step, narrowed)
        exponent = np.where(is_short, exponent - step, exponent)
    up = (narrowed >> 2) & 1 & ((narrowed >> 1) | narrowed | (narrowed >> 3)) & 1
    rounded = (narrowed >> 3) + up
    exponent = exponent + (rounded >> 24)
    result = sign | (exponent << 23) | (rounded & 0x7FFFFF)
    result = np.where(exponent <= 0, sign, result)
    return np.where(exponent >= 255, sign | INFINITY, result)
