"""What the functions of a lane give, by NumPy's floats and bits."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.rtl.design.vector.operation import (
    ENTRY_BITS,
    GREATEST_POWER,
    LEAST_POWER,
    RECIPROCAL_TABLE,
    ROOT_BITS,
    ROOT_SEED,
    ROOT_TABLE,
    TABLE_BITS,
    Operation,
)

Floats = NDArray[np.float32]
Powers = NDArray[np.int64]
POINT = 24
"""Bits behind the point of the fixed-point number that `split` goes through."""


@dataclass
class Kept:
    """What functions keep from one operation to the next: powers of two, and the places of maxima in windows.

    ``values``: how many values of the window there have been.
    """

    power: Powers
    place: Powers
    values: int = 0


def function_value(operation: Operation, held: Mapping[str, Floats], total: Floats, kept: Kept) -> Floats:
    """The value of ``operation`` whose sum is ``total``; changes what is ``kept``."""
    if operation.function == "split":
        value, kept.power = _split(held[operation.left])
        return value
    if operation.function == "scaled":
        return _scaled(total, kept.power)
    if operation.function in WINDOW_FUNCTIONS:
        return _window_value(operation.function, held, kept)
    seed = SEEDS.get(operation.function)
    return total if seed is None else seed(held[operation.left])


WINDOW_FUNCTIONS = ("maximum", "window_first", "window_next", "place")


def _window_value(function: str, held: Mapping[str, Floats], kept: Kept) -> Floats:
    x, first = held["x"], held["first_sum"]
    is_greater = np.isnan(x) | (~np.isnan(first) & (x > first))
    if function == "window_first":
        kept.values, kept.place = 1, np.ones_like(kept.place)
        return x
    if function == "place":
        return kept.place.astype(np.float32)
    if function == "window_next":
        kept.values += 1
        kept.place = np.where(is_greater, kept.values, kept.place)
    return np.where(is_greater, x, first)


def _bits(values: Floats) -> NDArray[np.int64]:
    """Exponent and fraction."""
    return np.ascontiguousarray(values).view(np.uint32).astype(np.int64) & 0x7FFFFFFF


def _floats(bits: NDArray[np.int64]) -> Floats:
    return bits.astype(np.uint32).view(np.float32)


def _of_finite(values: Floats, seeds: Floats) -> Floats:
    return np.where(np.isfinite(values) & (values != 0), seeds, np.float32(np.nan))


def _root_seed(values: Floats) -> Floats:
    return _of_finite(values, _floats(ROOT_SEED - (_bits(values) >> 1)))


def _root_table(values: Floats) -> Floats:
    bits = _bits(values)
    entries = np.array(ROOT_TABLE)[(bits >> (23 - ROOT_BITS)) & ((2 << ROOT_BITS) - 1)]
    exponent = 189 - (bits >> 24)
    return _of_finite(values, -_floats((exponent << 23) + (entries << (23 - ENTRY_BITS))))


def _reciprocal_seed(values: Floats) -> Floats:
    bits = _bits(values)
    is_power = bits & 0x7FFFFF == 0
    exponent = 253 + is_power - (bits >> 23)
    entries = np.array(RECIPROCAL_TABLE)[(bits >> (23 - TABLE_BITS)) & ((1 << TABLE_BITS) - 1)]
    fraction = np.where(is_power, 0, entries << (23 - ENTRY_BITS))
    return _of_finite(values, np.where(exponent > 0, _floats((np.maximum(exponent, 0) << 23) + fraction), 0.0))


def _logarithm_seed(values: Floats) -> Floats:
    return _of_finite(values, _floats((135 << 23) + (_bits(values) >> 8)))


SEEDS = {
    "root_seed": _root_seed,
    "root_table": _root_table,
    "reciprocal_seed": _reciprocal_seed,
    "logarithm_seed": _logarithm_seed,
}
"""Functions of ``left`` alone."""


def _split(values: Floats) -> tuple[Floats, Powers]:
    """1 + f and n of ``values`` = n + f; the magnitude is cut off behind the last bit of the fixed-point number."""
    magnitude = np.minimum(np.nan_to_num(np.abs(values.astype(np.float64)), nan=0.0, posinf=1e9), 1e9)
    fixed = np.floor(magnitude * 2**POINT).astype(np.int64)
    fixed = np.where(np.signbit(values), -fixed, fixed)
    power, part = fixed >> POINT, (fixed & ((1 << POINT) - 1)) >> 1
    above, below = power > GREATEST_POWER, power < LEAST_POWER
    power = np.clip(power, LEAST_POWER, GREATEST_POWER)
    part = np.where(above, (1 << (POINT - 1)) - 1, np.where(below, 0, part))
    return np.where(np.isnan(values), np.float32(np.nan), _floats((127 << 23) + part)), power


def _scaled(values: Floats, power: Powers) -> Floats:
    scaled = np.ldexp(values.astype(np.float64), power)
    with np.errstate(over="ignore"):
        found = scaled.astype(np.float32)
    return np.where(np.abs(scaled) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), found), found)
