"""The DTS unit of SparTANN: a comparator, a counter, a divider and one multiplier beside a stream of gradients.

The rule is `acf.gradients`' "dts", with the ratio target / sparsity in fixed point: 23 fraction bits, rounded down, so
that a threshold is within 2 ** -22 of the rule's. `next_threshold` is the unit's arithmetic, bit by bit.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import Component, In, Out

TARGET_BITS = 16
RATIO_BITS = 23  # fraction bits of target / sparsity
LEAST_RATIO, GREATEST_RATIO = round(0.8 * 2**RATIO_BITS), round(1.2 * 2**RATIO_BITS)
FIRST_RATIO = round(0.64 * 2**RATIO_BITS)  # times 2 ** -6: the hundredth that the second step starts with
FIRST_EXPONENT = -6
LEAST_NORMAL = 0x00800000
INFINITY = 0x7F800000


@dataclass(frozen=True)
class ThresholdSpec:
    """``count_bits`` bound the elements of one step."""

    count_bits: int = 24

    @property
    def divide_cycles(self) -> int:
        """Quotient bits, one per cycle."""
        return self.count_bits + TARGET_BITS + RATIO_BITS - TARGET_BITS

    @property
    def update_cycles(self) -> int:
        """Cycles from ``finish`` to the new threshold where there was one before; the first one takes 2."""
        return self.divide_cycles + 3


class ThresholdUnit(Component):
    """Zeroes elements whose magnitude is below ``threshold`` and scales that after every step.

    In a cycle with ``valid`` and ``ready``, ``element`` (float32 bits) leaves as ``kept``, 0 if ``dropped``, at once.
    ``finish`` ends the step: ``ready`` is 0 while the unit divides and multiplies. ``target`` is the share of zeros to
    reach, times 2 ** 16. A threshold of 0 becomes a hundredth of the greatest magnitude.
    """

    def __init__(self, spec: ThresholdSpec | None = None) -> None:
        self.spec = spec = spec or ThresholdSpec()
        super().__init__(
            {
                "element": In(32),
                "valid": In(1),
                "finish": In(1),
                "target": In(TARGET_BITS),
                "ready": Out(1),
                "kept": Out(32),
                "dropped": Out(1),
                "threshold": Out(32),
                "zeros": Out(spec.count_bits),
                "elements": Out(spec.count_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Compare and count in every cycle; at the end of a step multiply, divide, multiply."""
        m = Module()
        greatest = Signal(31)
        wide = max(24, self.spec.count_bits)  # a count, or the 24 bits of a significand
        left = Signal(wide)
        right = Signal(24)
        product = Signal(wide + 24)
        m.d.comb += product.eq(left * right)
        self._filter(m, greatest)
        quotient = Signal(self.spec.divide_cycles)
        remainder = Signal(self.spec.count_bits)
        steps = Signal(range(self.spec.divide_cycles + 1))
        starts = self.threshold == 0
        with m.FSM(name="update") as update:
            with m.State("RUN"), m.If(self.finish):
                m.next = "NUMERATOR"
            with m.State("NUMERATOR"):
                m.d.comb += [left.eq(self.elements), right.eq(self.target)]
                m.d.sync += [
                    quotient.eq(product << (RATIO_BITS - TARGET_BITS)),
                    remainder.eq(0),
                    steps.eq(0),
                ]
                m.next = "DIVIDE"
                with m.If(starts):
                    m.next = "SCALE"
            with m.State("DIVIDE"):
                self._divide(m, quotient, remainder)
                m.d.sync += steps.eq(steps + 1)
                with m.If(steps == self.spec.divide_cycles - 1):
                    m.next = "SCALE"
            with m.State("SCALE"):
                scaled = Signal(32)
                operand = Mux(starts, greatest, self.threshold[:31])
                m.d.comb += [left.eq(Cat(operand[:23], Const(1, 1))), right.eq(_ratio(m, quotient, starts))]
                m.d.comb += scaled.eq(_scale(m, operand, product[:48], starts))
                m.d.sync += [self.threshold.eq(scaled), self.zeros.eq(0), self.elements.eq(0), greatest.eq(0)]
                m.next = "RUN"
            m.d.comb += self.ready.eq(update.ongoing("RUN"))
        return m

    def _filter(self, m: Module, greatest: Signal) -> None:
        magnitude = self.element[:31]
        m.d.comb += [
            self.dropped.eq(magnitude < self.threshold[:31]),
            self.kept.eq(Mux(self.dropped, 0, self.element)),
        ]
        with m.If(self.valid & self.ready):
            m.d.sync += [
                self.elements.eq(self.elements + 1),
                self.zeros.eq(self.zeros + (self.dropped | (magnitude == 0))),
            ]
            with m.If(magnitude > greatest):
                m.d.sync += greatest.eq(magnitude)

    def _divide(self, m: Module, quotient: Signal, remainder: Signal) -> None:
        """One step of restoring division: the dividend leaves ``quotient`` at the top, its bits enter below."""
        trial = Signal(self.spec.count_bits + 1)
        fits = Signal()
        m.d.comb += [trial.eq(Cat(quotient[-1], remainder)), fits.eq(trial >= self.zeros)]
        m.d.sync += [
            quotient.eq(Cat(fits, quotient)),
            remainder.eq(Mux(fits, trial - self.zeros, trial)),
        ]


def _ratio(m: Module, quotient: Value, starts: Value) -> Value:
    """24 bits: the quotient within its limits, or the hundredth's."""
    ratio = Signal(24)
    with m.If(starts):
        m.d.comb += ratio.eq(FIRST_RATIO)
    with m.Elif(quotient < LEAST_RATIO):
        m.d.comb += ratio.eq(LEAST_RATIO)
    with m.Elif(quotient > GREATEST_RATIO):
        m.d.comb += ratio.eq(GREATEST_RATIO)
    with m.Else():
        m.d.comb += ratio.eq(quotient[:24])
    return ratio


def _scale(m: Module, operand: Value, product: Value, starts: Value) -> Value:
    """Float32 bits of ``operand`` times the ratio, from the 48-bit ``product`` of significand and ratio."""
    narrowed = Signal(26)  # 24 bits, one for rounding, one for what lies below
    shift = Signal(signed(3))
    with m.If(product[47]):
        m.d.comb += [narrowed.eq(Cat(product[:23].any(), product[23:48])), shift.eq(1)]
    with m.Elif(product[46]):
        m.d.comb += [narrowed.eq(Cat(product[:22].any(), product[22:47])), shift.eq(0)]
    with m.Else():
        m.d.comb += [narrowed.eq(Cat(product[:21].any(), product[21:46])), shift.eq(-1)]
    rounded = Signal(25)
    exponent = Signal(signed(11))
    result = Signal(32)
    m.d.comb += [
        rounded.eq(narrowed[2:] + (narrowed[1] & (narrowed[0] | narrowed[2]))),
        exponent.eq(operand[23:31] + Mux(starts, FIRST_EXPONENT, 0) + shift + rounded[24]),
    ]
    with m.If(operand[23:31] == 255):
        m.d.comb += result.eq(operand)
    with m.Elif((operand[23:31] == 0) | (exponent <= 0)):
        m.d.comb += result.eq(Mux(starts, 0, LEAST_NORMAL))
    with m.Elif(exponent >= 255):
        m.d.comb += result.eq(INFINITY)
    with m.Else():
        m.d.comb += result.eq(Cat(rounded[:23], exponent[:8]))
    return result


def next_threshold(threshold: int, zeros: int, elements: int, greatest: int, target: int) -> int:
    """Float32 bits of the threshold after a step: ``threshold`` and ``greatest`` are bits, ``target`` times 2 ** 16.

    >>> hex(next_threshold(0x3F800000, zeros=1, elements=4, greatest=0, target=1 << 15))  # 1.0 at half the zeros: 1.2
    '0x3f99999a'
    """
    starts = threshold == 0
    operand = greatest if starts else threshold
    if operand >> 23 == 255:
        return operand
    if starts:
        ratio = FIRST_RATIO
    elif zeros == 0:
        ratio = GREATEST_RATIO
    else:
        quotient = (elements * target << RATIO_BITS - TARGET_BITS) // zeros
        ratio = min(max(quotient, LEAST_RATIO), GREATEST_RATIO)
    product = ((operand & 0x7FFFFF) | 0x800000) * ratio
    below = product.bit_length() - 24
    kept, rest = product >> below, product & (1 << below) - 1
    half = 1 << below - 1
    rounded = kept + (rest > half or (rest == half and kept & 1))
    exponent = (operand >> 23) + (FIRST_EXPONENT if starts else 0) + below - RATIO_BITS + (rounded >> 24)
    if operand >> 23 == 0 or exponent <= 0:
        return 0 if starts else LEAST_NORMAL
    return INFINITY if exponent >= 255 else exponent << 23 | rounded & 0x7FFFFF


class ThresholdModel:
    """`ThresholdUnit` cycle by cycle."""

    def __init__(self, spec: ThresholdSpec | None = None) -> None:
        self.spec = spec or ThresholdSpec()
        self.threshold = self._zeros = self._elements = self._greatest = self._busy = 0

    def step(self, element: int, valid: int, finish: int, target: int) -> dict[str, int]:
        """One cycle; gives the outputs of that cycle. ``target`` must not change while the unit is busy."""
        magnitude = element & 0x7FFFFFFF
        dropped = int(magnitude < self.threshold)
        outputs = {
            "ready": int(not self._busy),
            "kept": 0 if dropped else element,
            "dropped": dropped,
            "threshold": self.threshold,
            "zeros": self._zeros,
            "elements": self._elements,
        }
        if self._busy:
            self._busy -= 1
            if self._busy == 0:
                counts = self._zeros, self._elements, self._greatest
                self.threshold = next_threshold(self.threshold, *counts, target)
                self._zeros = self._elements = self._greatest = 0
            return outputs
        if valid:
            self._elements += 1
            self._zeros += dropped or magnitude == 0
            self._greatest = max(self._greatest, magnitude)
        if finish:
            self._busy = 2 if self.threshold == 0 else self.spec.divide_cycles + 2
        return outputs
