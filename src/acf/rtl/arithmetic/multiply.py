"""The multiplier: bfloat16 x bfloat16 to float32, combinational. `model.multiply_bf16` says what it computes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.arithmetic.model import INFINITY, QUIET_NAN


class Bf16Multiplier(Component):
    """``a`` and ``b``, 16 bits each, to ``product``, 32 bits, in the same cycle."""

    def __init__(self) -> None:
        super().__init__({"a": In(16), "b": In(16), "product": Out(32)})

    def elaborate(self, platform: object) -> Module:
        """Multiply significands, add exponents, then choose among number, zero, Inf and NaN."""
        m = Module()
        exponents, fractions = [self.a[7:15], self.b[7:15]], [self.a[:7], self.b[:7]]
        product = Signal(16)
        exponent = Signal(signed(11))
        sign = Signal()
        m.d.comb += [
            sign.eq(self.a[15] ^ self.b[15]),
            product.eq(Cat(fractions[0], Const(1, 1)) * Cat(fractions[1], Const(1, 1))),
            exponent.eq(exponents[0] + exponents[1] - 127 + product[15]),
        ]
        is_zero = [each == 0 for each in exponents]
        is_special = [each == 255 for each in exponents]
        is_nan = [special & fraction.any() for special, fraction in zip(is_special, fractions, strict=True)]
        zero_by_infinity = (is_special[0] & is_zero[1]) | (is_special[1] & is_zero[0])
        with m.If(is_nan[0] | is_nan[1] | zero_by_infinity):
            m.d.comb += self.product.eq(QUIET_NAN)
        with m.Elif(is_special[0] | is_special[1]):
            m.d.comb += self.product.eq(Cat(Const(INFINITY, 31), sign))
        with m.Elif(is_zero[0] | is_zero[1] | (exponent <= 0)):
            m.d.comb += self.product.eq(Cat(Const(0, 31), sign))
        with m.Elif(exponent >= 255):
            m.d.comb += self.product.eq(Cat(Const(INFINITY, 31), sign))
        with m.Else():
            m.d.comb += self.product.eq(Cat(_fraction(product), exponent[:8], sign))
        return m


def _fraction(product: Value) -> Value:
    """The 23 bits below the leading one of a 16-bit product of two numbers in [1, 2)."""
    return Mux(product[15], Cat(Const(0, 8), product[:15]), Cat(Const(0, 9), product[:14]))
