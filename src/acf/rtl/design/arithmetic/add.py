"""The adder: float32 + float32, rounded to nearest even, combinational. `model.add_fp32` says what it computes.

Its shifters are multiplexers or, with ``products``, multiplications by a power of two: on an FPGA, DSPs are cheaper
than LUTs.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.arithmetic.number import FINITE, INFINITE, NOT_A_NUMBER, NUMBER, ZERO, packed, unpacked

_NEAR = 16  # exponents that differ by less are aligned without losing a bit
_FAR = 26  # one that differs by so much changes nothing
_DEEPEST = 25  # places by which a difference is shifted at most
_GROUP = 5  # places of the search for the leading one that a look-up table sees at once


class NumberAdder(Component):
    """``x`` and ``y`` to ``total``, each a `NUMBER`, in the same cycle."""

    def __init__(self, products: bool = False) -> None:
        self.products = products
        super().__init__({"x": In(NUMBER), "y": In(NUMBER), "total": Out(NUMBER)})

    def elaborate(self, platform: object) -> Module:
        """Align the smaller operand and add, normalise and round, then say what kind of number it is."""
        m = Module()
        x, y = self.x, self.y
        swap, subtract = Signal(), Signal()
        large, small = Signal(31), Signal(31)
        x_bits, y_bits = Cat(x.fraction, x.exponent), Cat(y.fraction, y.exponent)
        m.d.comb += [
            swap.eq((x.kind == ZERO) | ((y_bits > x_bits) & (y.kind != ZERO))),
            subtract.eq(x.sign ^ y.sign),
            large.eq(Mux(swap, y_bits, x_bits)),
            small.eq(Mux(swap, x_bits, y_bits)),
        ]
        has_zero = (x.kind == ZERO) | (y.kind == ZERO)
        lost = Mux(swap, x.fraction[:14].any(), y.fraction[:14].any())
        total = _add_aligned(m, large, small, lost, subtract, has_zero, self.products)
        rounded, is_nothing = _normalise_and_round(m, total, large[23:], self.products)
        m.d.comb += [self.total.fraction.eq(rounded[:23]), self.total.exponent.eq(rounded[23:31])]
        self._classify(m, swap, subtract, rounded[23:33], is_nothing)
        return m

    def _classify(self, m: Module, swap: Value, subtract: Value, exponent: Value, is_nothing: Value) -> None:
        """Kind and sign; the exponent has ten bits, the highest its sign."""
        x, y, total = self.x, self.y, self.total
        is_small = exponent[9] | (exponent == 0)
        is_large = ~exponent[9] & (exponent[8] | (exponent[:8] == 255))
        both_zero, both_infinite = (x.kind | y.kind) == ZERO, (x.kind[1] & y.kind[1])
        with m.If((x.kind == NOT_A_NUMBER) | (y.kind == NOT_A_NUMBER) | (both_infinite & subtract)):
            m.d.comb += total.kind.eq(NOT_A_NUMBER)
        with m.Elif(x.kind[1] | y.kind[1]):
            m.d.comb += [total.kind.eq(INFINITE), total.sign.eq(Mux(x.kind[1], x.sign, y.sign))]
        with m.Elif(both_zero):
            m.d.comb += [total.kind.eq(ZERO), total.sign.eq(x.sign & y.sign)]
        with m.Elif(is_nothing):
            m.d.comb += total.kind.eq(ZERO)
        with m.Else():
            m.d.comb += [
                total.kind.eq(Mux(is_small, ZERO, Mux(is_large, INFINITE, FINITE))),
                total.sign.eq(Mux(swap, y.sign, x.sign)),
            ]


class Fp32Adder(Component):
    """``x`` and ``y``, 32 bits each, to ``total``, 32 bits, in the same cycle.

    ``canonical``: operands come from an adder, so that the only NaN among them is the quiet one.
    """

    def __init__(self, canonical: bool = False, products: bool = False) -> None:
        self.canonical, self.products = canonical, products
        super().__init__({"x": In(32), "y": In(32), "total": Out(32)})

    def elaborate(self, platform: object) -> Module:
        """Sort the operands, add, put the result together."""
        m = Module()
        m.submodules.adder = adder = NumberAdder(self.products)
        m.d.comb += [
            adder.x.eq(unpacked(m, self.x, "unpacked_x", self.canonical)),
            adder.y.eq(unpacked(m, self.y, "unpacked_y", self.canonical)),
            self.total.eq(packed(m, adder.total, "packed_total")),
        ]
        return m


def _add_aligned(
    m: Module, large: Value, small: Value, lost: Value, subtract: Value, has_zero: Value, products: bool
) -> Signal:
    """Sum or difference of the significands, 42 bits: carry, 24 bits, and 17 below the larger one's last.

    The smaller one, as it is or 15 places lower with ``lost`` for the bits below, times a power of two, which is
    negative to subtract.
    """
    distance, code = Signal(8), Signal(5)
    m.d.comb += [
        distance.eq(large[23:] - small[23:]),
        code.eq(distance[:5] | (distance[5:].any() | has_zero).replicate(5)),
    ]
    is_far = distance[4]
    significand = Cat(small[:23], Const(1, 1))
    shifted, total = Signal(signed(27)), Signal(42)
    near, far = Cat(Const(0, 2), significand), Cat(lost, significand[14:])
    larger = Cat(Const(0, 17), large[:23], Const(1, 1))
    m.d.comb += shifted.eq(Mux(is_far, far, near))
    if products:
        power = Signal(signed(17))
        m.d.comb += [power.eq(_powers(code, subtract)), total.eq(shifted * power + larger)]
        return total
    lifted, place = Signal(41), Signal(4)
    is_too_far = code >= _FAR
    m.d.comb += [
        place.eq(15 - code[:4] - is_far),
        lifted.eq(Mux(is_too_far, 0, shifted[:26] << place)),
        total.eq(Mux(subtract, larger - lifted, larger + lifted)),
    ]
    return total


def _powers(code: Value, subtract: Value) -> Value:
    """Two to the places by which the smaller operand is lifted, negative to subtract; 0 where it is too far away."""
    places = {distance: 15 - distance + (15 if distance >= _NEAR else 0) for distance in range(_FAR)}
    bits = []
    for bit in range(17):
        plus = [code == distance for distance, place in places.items() if place == bit]
        minus = [code == distance for distance, place in places.items() if place < bit]
        bits.append(Cat(*plus).any() | (subtract & Cat(*minus).any()))
    return Cat(*bits)


def _normalise_and_round(m: Module, total: Value, exponent: Value, products: bool) -> tuple[Value, Value]:
    """23 bits of fraction and ten of exponent above them; whether the total is zero.

    The leading one goes to place 26; half of the last place is added there, and a tie that was rounded up loses its
    last bit.
    """
    carry, value = total[41], total[15:41]
    first, is_nothing = _leading_one(m, Cat(carry, *reversed(value[1:])))
    # In place 26 the leading one adds to the exponent, unless it is the carry or left out.
    is_left_out = range(17, _DEEPEST + 1) if products else range(1, _DEEPEST + 1)
    less_by_place = [place - 1 if place == 0 or place in is_left_out else place for place in range(_DEEPEST + 1)]
    less, raised = _encoded(m, first, less_by_place, "less"), Signal(10)
    m.d.comb += raised.eq(exponent - less)
    rest, upper, high = Signal(4), Signal(32), Signal(9)
    if products:
        m.d.comb += high.eq(value[:10] * first[17:])
        shifted = (value * first[:17])[:36]
    else:
        places = _encoded(m, first, list(range(_DEEPEST + 1)), "places")
        shifted = (value << places[:5])[:26]
    m.d.comb += Cat(rest, upper).eq(shifted + Cat(Const(4, 17), high, raised))
    is_tie = ~(rest[:3].any() | total[:15].any())
    return Cat(rest[3] & ~is_tie, upper), is_nothing


def _encoded(m: Module, first: Value, numbers: list[int], name: str) -> Signal:
    """The number, 6 bits with its sign, of the one place whose bit is set."""
    number = Signal(signed(6), name=name)
    bits = (Cat(*(first[place] for place, each in enumerate(numbers) if each >> bit & 1)).any() for bit in range(6))
    m.d.comb += number.eq(Cat(*bits))
    return number


def _leading_one(m: Module, bits: Value) -> tuple[Signal, Value]:
    """One bit for the first that is set, counted from the lowest; whether none is."""
    first, none_before = Signal(len(bits)), Const(1, 1)
    for start in range(0, len(bits), _GROUP):
        group = bits[start : start + _GROUP]
        for place in range(len(group)):
            m.d.comb += first[start + place].eq(none_before & group[place] & ~group[:place].any())
        none_after = Signal(name=f"none_{start}")
        m.d.comb += none_after.eq(none_before & ~group.any())
        none_before = none_after
    return first, none_before
