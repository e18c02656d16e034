"""Functions of a lane in gates: seeds, the two ends of an exponential, and the maximum."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed

from acf.rtl.design.arithmetic.number import FINITE, INFINITE, NOT_A_NUMBER, NUMBER, ZERO
from acf.rtl.design.vector.operation import (
    ENTRY_BITS,
    GREATEST_POWER,
    LEAST_POWER,
    RECIPROCAL_TABLE,
    ROOT_BITS,
    ROOT_SEED,
    ROOT_TABLE,
    TABLE_BITS,
)

FRACTION_BITS = NUMBER["fraction"].width
BIAS = 127
PLACE_BITS = 4
"""Bits of a place in a window."""


def number_word(value: float) -> int:
    """The bits of a `NUMBER` that is finite and not zero."""
    return int(np.float32(value).view(np.uint32)) | FINITE << 32


class Numbers(NamedTuple):
    """What functions see of a lane: operand ``left``, the sum, ``x``, ``first_sum``, and what they have kept.

    ``power``: of two. ``values``: how many values of a window there have been; ``place``: that of the greatest.
    """

    left: Any
    total: Any
    x: Any
    first_sum: Any
    power: Signal
    values: Signal
    place: Signal


def _root_seed(m: Module, numbers: Numbers, acts: Value) -> Value:
    left = numbers.left
    bits = (ROOT_SEED - Cat(left.fraction, left.exponent)[1:])[:31]
    return Cat(bits, Const(0, 1), _kind_of_seed(left))


def _root_table(m: Module, numbers: Numbers, acts: Value) -> Value:
    """With mantissa m and exponent e: 2 / sqrt(m), or 2 / sqrt(2 m) where e is odd, and 189 - e / 2."""
    left = numbers.left
    index = Cat(left.fraction[FRACTION_BITS - ROOT_BITS :], left.exponent[0])
    table = Array(Const(each, ENTRY_BITS) for each in ROOT_TABLE)[index]
    exponent = (189 - left.exponent[1:])[:8]
    return Cat(Const(0, FRACTION_BITS - ENTRY_BITS), table, exponent, Const(1, 1), _kind_of_seed(left))


def _reciprocal_seed(m: Module, numbers: Numbers, acts: Value) -> Value:
    """With mantissa m and exponent e: 2 / m from the table and 253 - e, or 1 and 254 - e where m is 1."""
    left, exponent = numbers.left, Signal(signed(9), name="reciprocal_exponent")
    table = Array(Const(each, ENTRY_BITS) for each in RECIPROCAL_TABLE)[left.fraction[FRACTION_BITS - TABLE_BITS :]]
    is_power = left.fraction == 0
    m.d.comb += exponent.eq(2 * BIAS - 1 + is_power - left.exponent)
    fraction = Cat(Const(0, FRACTION_BITS - ENTRY_BITS), Mux(is_power, 0, table))
    kind = Mux((left.kind == FINITE) & (exponent <= 0), Const(ZERO, 2), _kind_of_seed(left))
    return Cat(fraction, exponent[:8], Const(0, 1), kind)


def _logarithm_seed(m: Module, numbers: Numbers, acts: Value) -> Value:
    """256 + exponent + fraction as a number whose own fraction has both."""
    left = numbers.left
    fraction = Cat(left.fraction[8:], left.exponent)
    return Cat(fraction, Const(BIAS + 8, 8), Const(0, 1), _kind_of_seed(left))


def _kind_of_seed(left: Any) -> Value:
    return Mux(left.kind == FINITE, Const(FINITE, 2), Const(NOT_A_NUMBER, 2))


def _split(m: Module, numbers: Numbers, acts: Value) -> Value:
    """``left`` in fixed point with 24 bits behind the point; the whole part is kept."""
    left, point = numbers.left, FRACTION_BITS + 1
    largest = BIAS + 6  # below 128
    magnitude, fixed = Signal(point + 7), Signal(signed(point + 9))
    power, part, beyond = Signal(signed(8)), Signal(FRACTION_BITS), Signal()
    is_finite = left.kind == FINITE
    shift = (largest - left.exponent)[:8]
    mantissa = Cat(Const(0, 7), left.fraction, Const(1, 1))
    m.d.comb += [
        magnitude.eq(Mux(is_finite & (shift < 32), mantissa >> shift[:5], 0)),
        fixed.eq(Mux(left.sign, -magnitude, magnitude)),
        beyond.eq((left.kind == INFINITE) | (is_finite & (left.exponent > largest))),
        power.eq(fixed[point:]),
        part.eq(fixed[1:point]),
    ]
    with m.If(~left.sign & (beyond | (fixed[point : point + 7] > GREATEST_POWER))):
        m.d.comb += [power.eq(GREATEST_POWER), part.eq((1 << FRACTION_BITS) - 1)]
    with m.Elif(left.sign & beyond):
        m.d.comb += [power.eq(LEAST_POWER), part.eq(0)]
    with m.If(acts):
        m.d.sync += numbers.power.eq(power)
    kind = Mux(left.kind == NOT_A_NUMBER, Const(NOT_A_NUMBER, 2), Const(FINITE, 2))
    return Cat(part, Const(BIAS, 8), Const(0, 1), kind)


def _scaled(m: Module, numbers: Numbers, acts: Value) -> Value:
    total, exponent = numbers.total, Signal(signed(10))
    m.d.comb += exponent.eq(total.exponent + numbers.power)
    above, below = exponent >= 255, exponent <= 0
    kind = Mux(total.kind == FINITE, Mux(above, INFINITE, Mux(below, ZERO, FINITE)), total.kind)
    return Cat(total.fraction, exponent[:8], total.sign, kind)


def _maximum(m: Module, numbers: Numbers, acts: Value) -> Value:
    return Mux(_is_greater(numbers), numbers.x.as_value(), numbers.first_sum.as_value())


def _is_greater(numbers: Numbers) -> Value:
    """Whether x is above first_sum; NaN is above all, the latest NaN above an earlier one."""
    x, first = numbers.x, numbers.first_sum
    return (x.kind == NOT_A_NUMBER) | ((first.kind != NOT_A_NUMBER) & (_order(x) > _order(first)))


def _window_first(m: Module, numbers: Numbers, acts: Value) -> Value:
    with m.If(acts):
        m.d.sync += [numbers.values.eq(1), numbers.place.eq(1)]
    return Value.cast(numbers.x.as_value())


def _window_next(m: Module, numbers: Numbers, acts: Value) -> Value:
    is_greater = Signal(name="is_greatest")
    m.d.comb += is_greater.eq(_is_greater(numbers))
    with m.If(acts):
        m.d.sync += numbers.values.eq(numbers.values + 1)
        with m.If(is_greater):
            m.d.sync += numbers.place.eq(numbers.values + 1)
    return Mux(is_greater, numbers.x.as_value(), numbers.first_sum.as_value())


def _place(m: Module, numbers: Numbers, acts: Value) -> Value:
    words = [number_word(max(1, place)) for place in range(1 << PLACE_BITS)]
    return Array(Const(word, NUMBER.size) for word in words)[numbers.place]


def _where_equal(m: Module, numbers: Numbers, acts: Value) -> Value:
    """The sum; its operands are chosen by the comparison."""
    return Value.cast(numbers.total.as_value())


def _order(number: Any) -> Value:
    """A whole number that grows with ``number``, of those that are one; equal for both zeros."""
    size = Mux(number.kind == FINITE, Cat(number.fraction, number.exponent), Mux(number.kind == ZERO, 0, 255 << 23))
    return Mux(number.sign, -size, size)


FUNCTION_GATES: dict[str, Callable[[Module, Numbers, Value], Value]] = {
    "root_seed": _root_seed,
    "root_table": _root_table,
    "reciprocal_seed": _reciprocal_seed,
    "logarithm_seed": _logarithm_seed,
    "split": _split,
    "scaled": _scaled,
    "maximum": _maximum,
    "window_first": _window_first,
    "window_next": _window_next,
    "place": _place,
    "where_equal": _where_equal,
}
"""The gates of every name of `FUNCTIONS`: bits of a `NUMBER`; the last argument is 1 in a cycle that keeps them."""
