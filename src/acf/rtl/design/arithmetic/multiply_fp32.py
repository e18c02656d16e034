"""The multiplier: float32 x float32 to float32, rounded to nearest even, combinational. `model.multiply_flushed`."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.arithmetic.number import FINITE, INFINITE, NOT_A_NUMBER, NUMBER, ZERO


class Fp32NumberMultiplier(Component):
    """``x`` and ``y`` to ``product``, each a `NUMBER`, in the same cycle."""

    def __init__(self) -> None:
        super().__init__({"x": In(NUMBER), "y": In(NUMBER), "product": Out(NUMBER)})

    def elaborate(self, platform: object) -> Module:
        """Multiply significands, round, add exponents, then say what kind of number it is."""
        m = Module()
        x, y = self.x, self.y
        whole, normalised, rounded = Signal(48), Signal(48), Signal(25)
        biased = Signal(10)  # the exponent with the bias of both operands
        is_up = normalised[23] & (normalised[:23].any() | normalised[24])
        m.d.comb += [
            whole.eq(Cat(x.fraction, Const(1, 1)) * Cat(y.fraction, Const(1, 1))),
            normalised.eq(Mux(whole[47], whole, whole << 1)),
            rounded.eq(normalised[24:] + is_up),
            biased.eq(x.exponent + y.exponent + whole[47] + rounded[24]),
            self.product.fraction.eq(rounded[:23]),  # all zeros where rounding carries into the exponent
            self.product.exponent.eq((biased - 127)[:8]),
            self.product.sign.eq(x.sign ^ y.sign),
        ]
        has_zero = (x.kind == ZERO) | (y.kind == ZERO)
        has_nan = (x.kind == NOT_A_NUMBER) | (y.kind == NOT_A_NUMBER)
        has_infinity = (x.kind == INFINITE) | (y.kind == INFINITE)
        with m.If(has_nan | (has_infinity & has_zero)):
            m.d.comb += self.product.kind.eq(NOT_A_NUMBER)
        with m.Elif(has_infinity):
            m.d.comb += self.product.kind.eq(INFINITE)
        with m.Elif(has_zero | (biased <= 127)):
            m.d.comb += self.product.kind.eq(ZERO)
        with m.Else():
            m.d.comb += self.product.kind.eq(Mux(biased >= 127 + 255, INFINITE, FINITE))
        return m
