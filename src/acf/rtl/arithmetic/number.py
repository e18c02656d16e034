"""Float32 numbers between the arithmetic units: what is not a finite number is told by two bits beside the others.

So an adder need not look for zeros, Inf and NaN in its operands, nor write them into its result. A word of a block RAM
of 36 bits holds such a number.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from acf.rtl.arithmetic.model import QUIET_NAN

ZERO, FINITE, INFINITE, NOT_A_NUMBER = range(4)
"""Kinds of numbers. A memory that was never written holds zeros."""

NUMBER = data.StructLayout({"fraction": 23, "exponent": 8, "sign": 1, "kind": 2})
"""Fraction and exponent mean nothing where the kind is not ``FINITE``, nor the sign of what is no number."""


def unpacked(m: Module, bits: Value, name: str, canonical: bool = False) -> Any:
    """A `NUMBER` of float32 bits; subnormals are zeros. ``canonical``: the only NaN is the quiet one."""
    number = Signal(NUMBER, name=name)
    fraction, exponent = bits[:23], bits[23:31]
    is_nan = fraction[22] if canonical else fraction.any()
    m.d.comb += [
        number.eq(bits),
        number.kind.eq(Mux(exponent == 255, Cat(is_nan, Const(1, 1)), Cat(exponent.any(), Const(0, 1)))),
    ]
    return number


def packed(number: Any) -> Value:
    """Float32 bits of a `NUMBER`; every NaN is 0x7FC00000."""
    is_nan, is_finite = number.kind == NOT_A_NUMBER, number.kind == FINITE
    fraction = number.fraction & is_finite.replicate(23)
    exponent = (number.exponent & is_finite.replicate(8)) | number.kind[1].replicate(8)
    return Cat(fraction[:22], fraction[22] | (is_nan & (QUIET_NAN >> 22 & 1)), exponent, number.sign & ~is_nan)
