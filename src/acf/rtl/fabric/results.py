"""Results on their way out of a cluster: words of its units gathered to flits, and sums of a column added up."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.arithmetic.add import Fp32Adder
from acf.rtl.fabric.bits import delayed
from acf.rtl.fabric.sizes import FabricSizes
from acf.rtl.flow.parts import place


class FlitGatherer(Component):
    """Reads the words of flit number ``flit`` from all units, a word of each in a cycle, and puts them side by side.

    Word ``n`` of a bank is word ``n // units`` of unit ``n % units``. ``valid`` comes ``cycles`` after ``start``, with
    a flit of values of ``bits`` each. One gatherer for bf16 results, one for partial sums.
    """

    def __init__(self, sizes: FabricSizes, bits: int) -> None:
        self.sizes, self.bits = sizes, bits
        self.values = values = sizes.flit_bits // bits
        shape = sizes.shape
        self.cycle_values = shape.units_per_cluster * shape.lanes
        self.cycles = max(1, values // self.cycle_values)
        self.flits = shape.accumulator_tiles * sizes.piece_values // values
        super().__init__(
            {
                "start": In(1),
                "flit": In(bits_for(self.flits - 1)),
                "read": Out(1),
                "address": Out(bits_for(sizes.sum_words - 1)),
                "words": In(bits * self.cycle_values),
                "valid": Out(1),
                "data": Out(sizes.flit_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Words that come early wait in registers; the last go straight through."""
        m = Module()
        if self.cycles == 1:
            parts = self.cycle_values // self.values
            part = delayed(m, self.flit % parts, 1, "part")
            m.d.comb += [
                self.read.eq(self.start),
                self.address.eq(self.flit // parts),
                self.valid.eq(delayed(m, self.start, 1, "valid")),
                self.data.eq(self.words.word_select(part, self.sizes.flit_bits)),
            ]
            return m
        flit, word, busy = Signal.like(self.flit), Signal(range(self.cycles)), Signal()
        m.d.comb += [
            self.read.eq(self.start | busy),
            self.address.eq(Mux(self.start, self.flit * self.cycles, flit * self.cycles + word)),
        ]
        with m.If(self.start):
            m.d.sync += [flit.eq(self.flit), word.eq(1), busy.eq(1)]
        with m.Elif(busy):
            m.d.sync += [word.eq(word + 1), busy.eq(word != self.cycles - 1)]
        came = delayed(m, Mux(self.start, 0, word), 1, "came")
        kept = [Signal(self.bits * self.cycle_values, name=f"word_{index}") for index in range(self.cycles - 1)]
        for index, register in enumerate(kept):
            with m.If(came == index):
                m.d.sync += register.eq(self.words)
        m.d.comb += [
            self.valid.eq(delayed(m, busy & (word == self.cycles - 1), 1, "valid")),
            self.data.eq(Cat(*kept, self.words)),
        ]
        return m


class SumChain(Component):
    """Adds a flit of a cluster's partial sums to the one that comes down the column; the first row has none to add."""

    def __init__(self, values: int, is_first: bool) -> None:
        self.values, self.is_first = values, is_first
        super().__init__({"above": In(32 * values), "own": In(32 * values), "total": Out(32 * values)})

    def elaborate(self, platform: object) -> Module:
        """An adder per value."""
        m = Module()
        if self.is_first:
            m.d.comb += self.total.eq(self.own)
            return m
        for index in range(self.values):
            adder = place(m, f"adder_{index}", Fp32Adder(canonical=True), "sum_adder")
            bits = slice(32 * index, 32 * index + 32)
            m.d.comb += [
                adder.x.eq(self.above[bits]),
                adder.y.eq(self.own[bits]),
                self.total[bits].eq(adder.total),
            ]
        return m


def rounded_bf16(value: Value) -> Value:
    """Float32 bits to bf16 bits, to the nearest, ties to even; the only NaN is the quiet one."""
    is_up = value[15] & (value[:15].any() | value[16])
    return (value[16:32] + is_up)[:16]
