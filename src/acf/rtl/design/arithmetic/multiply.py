"""The multiplier: bfloat16 x bfloat16 to float32, combinational. `model.multiply_bf16` says what it computes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.arithmetic.number import FINITE, INFINITE, NOT_A_NUMBER, NUMBER, ZERO, packed


class NumberMultiplier(Component):
    """``a`` and ``b``, 16 bits each, to ``product``, a `NUMBER`, in the same cycle."""

    def __init__(self) -> None:
        super().__init__({"a": In(16), "b": In(16), "product": Out(NUMBER)})

    def elaborate(self, platform: object) -> Module:
        """Multiply significands, add exponents, then say what kind of number it is."""
        m = Module()
        exponents, fractions = [self.a[7:15], self.b[7:15]], [self.a[:7], self.b[:7]]
        product = Signal(16)
        exponent = Signal(signed(11))
        m.d.comb += [
            product.eq(Cat(fractions[0], Const(1, 1)) * Cat(fractions[1], Const(1, 1))),
            exponent.eq(exponents[0] + exponents[1] - 127 + product[15]),
            self.product.fraction.eq(Cat(Const(0, 8), Mux(product[15], product[:15], Cat(Const(0, 1), product[:14])))),
            self.product.exponent.eq(exponent[:8]),
            self.product.sign.eq(self.a[15] ^ self.b[15]),
        ]
        has_zero = ~(exponents[0].any() & exponents[1].any())
        are_special = [each.all() for each in exponents]
        has_special = are_special[0] | are_special[1]
        has_nan = (are_special[0] & fractions[0].any()) | (are_special[1] & fractions[1].any())
        with m.If(has_nan | (has_special & has_zero)):
            m.d.comb += self.product.kind.eq(NOT_A_NUMBER)
        with m.Elif(has_special):
            m.d.comb += self.product.kind.eq(INFINITE)
        with m.Elif(has_zero | (exponent <= 0)):
            m.d.comb += self.product.kind.eq(ZERO)
        with m.Else():
            m.d.comb += self.product.kind.eq(Mux(exponent >= 255, INFINITE, FINITE))
        return m


class Bf16Multiplier(Component):
    """``a`` and ``b``, 16 bits each, to ``product``, 32 bits, in the same cycle."""

    def __init__(self) -> None:
        super().__init__({"a": In(16), "b": In(16), "product": Out(32)})

    def elaborate(self, platform: object) -> Module:
        """Multiply, put the result together."""
        m = Module()
        m.submodules.multiplier = multiplier = NumberMultiplier()
        m.d.comb += [
            multiplier.a.eq(self.a),
            multiplier.b.eq(self.b),
            self.product.eq(packed(m, multiplier.product, "packed_product")),
        ]
        return m
