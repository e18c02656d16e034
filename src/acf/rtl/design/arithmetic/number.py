"""Float32 between the arithmetic units, with two bits that classify a number as zero, finite, Inf or NaN.

So an adder neither decodes special values in its operands nor encodes them in its result. With 34 bits a number fits
a 36-bit word of block RAM.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from acf.rtl.design.arithmetic.model import INFINITY, QUIET_NAN

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


def packed(m: Module, number: Any, name: str) -> Signal:
    """Float32 bits of a `NUMBER`; every NaN is 0x7FC00000."""
    bits = Signal(32, name=name)
    m.d.comb += bits.eq(Cat(number.fraction, number.exponent, number.sign))
    with m.If(number.kind == NOT_A_NUMBER):
        m.d.comb += bits.eq(QUIET_NAN)
    with m.Elif(number.kind == INFINITE):
        m.d.comb += bits[:31].eq(INFINITY)
    with m.Elif(number.kind == ZERO):
        m.d.comb += bits[:31].eq(0)
    return bits
