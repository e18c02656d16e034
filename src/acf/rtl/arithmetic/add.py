"""The adder: float32 + float32, rounded to nearest even, combinational. `model.add_fp32` says what it computes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.arithmetic.model import INFINITY, QUIET_NAN


class Fp32Adder(Component):
    """``x`` and ``y``, 32 bits each, to ``total``, 32 bits, in the same cycle."""

    def __init__(self) -> None:
        super().__init__({"x": In(32), "y": In(32), "total": Out(32)})

    def elaborate(self, platform: object) -> Module:
        """Align the smaller operand, add, normalise, round, then choose among number, zero, Inf and NaN."""
        m = Module()
        swap = Signal()
        subtract = Signal()
        large = Signal(32)
        small = Signal(32)
        m.d.comb += [
            swap.eq(self.y[:31] > self.x[:31]),
            large.eq(Mux(swap, self.y, self.x)),
            small.eq(Mux(swap, self.x, self.y)),
            subtract.eq(large[31] ^ small[31]),
        ]
        total = Signal(28)
        aligned = _align(m, small, large)
        m.d.comb += total.eq(Mux(subtract, _significand(large) - aligned, _significand(large) + aligned))
        rounded, exponent = _normalise_and_round(m, total, large[23:31])
        self._select(m, large, small, subtract, total, rounded, exponent)
        return m

    def _select(
        self,
        m: Module,
        large: Value,
        small: Value,
        subtract: Value,
        total: Value,
        rounded: Value,
        exponent: Value,
    ) -> None:
        is_nan = (large[:31] > INFINITY) | (small[:31] > INFINITY)
        is_infinite, both_infinite = large[23:31] == 255, small[23:31] == 255
        with m.If(is_nan | (both_infinite & subtract)):
            m.d.comb += self.total.eq(QUIET_NAN)
        with m.Elif(is_infinite | (exponent >= 255)):
            m.d.comb += self.total.eq(Cat(Const(INFINITY, 31), large[31]))
        with m.Elif(large[23:31] == 0):
            m.d.comb += self.total.eq(Cat(Const(0, 31), large[31] & small[31]))
        with m.Elif(total == 0):
            m.d.comb += self.total.eq(0)
        with m.Elif(exponent <= 0):
            m.d.comb += self.total.eq(Cat(Const(0, 31), large[31]))
        with m.Else():
            m.d.comb += self.total.eq(Cat(rounded[:23], exponent[:8], large[31]))


def _significand(bits: Value) -> Value:
    """24 bits with the leading one and three below for rounding; 0 for what counts as zero."""
    normal = bits[23:31] != 0
    return Cat(Const(0, 3), bits[:23] & normal.replicate(23), normal)


def _align(m: Module, small: Value, large: Value) -> Value:
    """The smaller significand, 27 bits, shifted to the exponent of the larger; lost bits stay as its lowest."""
    distance = Signal(8)
    shifted = Signal(27)
    m.d.comb += distance.eq(large[23:31] - small[23:31])
    wide = Signal(54)
    m.d.comb += wide.eq(Cat(Const(0, 27), _significand(small)) >> distance[:5])
    is_far = distance[5:].any() | (distance[:5] >= 27)
    m.d.comb += shifted.eq(Mux(is_far, _significand(small).any(), wide[27:] | wide[:27].any()))
    return shifted


def _normalise_and_round(m: Module, total: Value, exponent: Value) -> tuple[Value, Value]:
    """24 rounded bits (25 with the carry) and their exponent, by shifts of 16, 8, 4, 2 and 1 places."""
    value: Value = Mux(total[27], Cat(total[1] | total[0], total[2:28]), total[:27])
    places: list[Value] = []
    for step in (16, 8, 4, 2, 1):
        stage, is_short = Signal(27, name=f"shifted_{step}"), Signal(name=f"is_short_{step}")
        m.d.comb += [is_short.eq(value[27 - step :] == 0), stage.eq(Mux(is_short, value << step, value))]
        value, places = stage, [is_short, *places]
    rounded = Signal(25)
    final = Signal(signed(11))
    m.d.comb += [
        rounded.eq(value[3:] + (value[2] & (value[1] | value[0] | value[3]))),
        final.eq(exponent + total[27] - Cat(*places) + rounded[24]),
    ]
    return rounded, final
