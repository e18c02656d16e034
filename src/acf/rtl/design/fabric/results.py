"""Results on their way out of a cluster: words of its SCUs assembled to flits, and partial sums of a column added."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.arithmetic.add import Fp32Adder
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import delayed, word_of
from acf.rtl.design.primitives.shared_modules import place


class FlitGatherer(Component):
    """Reads the words of flit number ``flit``, one of every SCU per cycle, and concatenates them.

    Word ``n`` of a bank is word ``n // SCUs`` of SCU ``n % SCUs``. ``valid`` comes ``cycles`` after ``start``, with
    a flit of bf16 values.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        self.values = values = sizes.flit_values
        shape = sizes.shape
        self.cycle_values = shape.scus_per_cluster * shape.lanes
        self.cycles = max(1, values // self.cycle_values)
        self.flits = shape.accumulator_tiles * sizes.tile_values // values
        super().__init__(
            {
                "start": In(1),
                "flit": In(bits_for(self.flits - 1)),
                "reads": Out(shape.scus_per_cluster),
                "address": Out(bits_for(sizes.sum_words - 1)),
                "words": In(16 * self.cycle_values),
                "valid": Out(1),
                "data": Out(sizes.flit_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """All words but the last wait in registers."""
        m = Module()
        if self.cycles == 1:
            parts = self.cycle_values // self.values
            part = delayed(m, self.flit % parts, 1, "part")
            for scu in range(len(self.reads)):  # words of other parts are not read yet: reading clears
                is_here = self.flit % parts == scu * self.sizes.shape.lanes // self.values
                m.d.comb += self.reads[scu].eq(self.start & is_here)
            m.d.comb += [
                self.address.eq(self.flit // parts),
                self.valid.eq(delayed(m, self.start, 1, "valid")),
                self.data.eq(self.words.word_select(part, self.sizes.flit_bits)),
            ]
            return m
        flit, word, busy = Signal.like(self.flit), Signal(range(self.cycles)), Signal()
        m.d.comb += [
            self.reads.eq((self.start | busy).replicate(len(self.reads))),
            self.address.eq(Mux(self.start, self.flit * self.cycles, flit * self.cycles + word)),
        ]
        with m.If(self.start):
            m.d.sync += [flit.eq(self.flit), word.eq(1), busy.eq(1)]
        with m.Elif(busy):
            m.d.sync += [word.eq(word + 1), busy.eq(word != self.cycles - 1)]
        came = delayed(m, Mux(self.start, 0, word), 1, "came")
        kept = [Signal(16 * self.cycle_values, name=f"word_{index}") for index in range(self.cycles - 1)]
        for index, register in enumerate(kept):
            with m.If(came == index):
                m.d.sync += register.eq(self.words)
        m.d.comb += [
            self.valid.eq(delayed(m, busy & (word == self.cycles - 1), 1, "valid")),
            self.data.eq(Cat(*kept, self.words)),
        ]
        return m


class SumReader(Component):
    """Reads flit number ``flit`` of partial sums, ``sum_values`` in each of ``cycles`` cycles, from the SCUs in turn.

    ``drains`` selects them, one bit per SCU. A cycle after each read ``valid`` is 1 with the values, 32 bits each.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        shape = sizes.shape
        flit_values, cycle_values = sizes.flit_bits // 32, shape.scus_per_cluster * shape.lanes
        self.cycles, self.parts = flit_values // sizes.sum_values, cycle_values // sizes.sum_values
        self.flits = shape.accumulator_tiles * sizes.tile_values // flit_values
        super().__init__(
            {
                "start": In(1),
                "flit": In(bits_for(self.flits - 1)),
                "drains": Out(shape.scus_per_cluster),
                "address": Out(bits_for(sizes.sum_words - 1)),
                "words": In(32 * cycle_values),
                "valid": Out(1),
                "values": Out(32 * sizes.sum_values),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Reads are numbered through the bank; ``parts`` of them take one word from every SCU."""
        m, shape = Module(), self.sizes.shape
        number, reads = Signal(range(max(2, self.flits * self.cycles))), Signal()
        m.d.comb += [number.eq(self.flit), reads.eq(self.start)]
        if self.cycles > 1:
            following, left = Signal.like(number), Signal(range(self.cycles))
            m.d.comb += [
                number.eq(Mux(self.start, self.flit * self.cycles, following)),
                reads.eq(self.start | (left != 0)),
            ]
            m.d.sync += following.eq(number + 1)
            with m.If(self.start):
                m.d.sync += left.eq(self.cycles - 1)
            with m.Elif(left != 0):
                m.d.sync += left.eq(left - 1)
        part_bits = (self.parts - 1).bit_length()
        part = number[:part_bits]
        for scu in range(shape.scus_per_cluster):
            m.d.comb += self.drains[scu].eq(reads & (part == scu * shape.lanes // self.sizes.sum_values))
        m.d.comb += [
            self.address.eq(number[part_bits:]),
            self.valid.eq(delayed(m, reads, 1, "valid")),
            self.values.eq(word_of(self.words, delayed(m, part, 1, "part"), len(self.values))),
        ]
        return m


class SumCollector(Component):
    """Assembles the partial sums that come out of a column, ``sum_values`` a cycle, to flits."""

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        super().__init__(
            {
                "values_valid": In(1),
                "values": In(32 * sizes.sum_values),
                "valid": Out(1),
                "flit": Out(sizes.flit_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """All values but the last wait in registers."""
        m = Module()
        width = len(self.values)
        parts = len(self.flit) // width
        kept, came = Signal(len(self.flit) - width), Signal(range(max(2, parts)))
        m.d.comb += [
            self.flit.eq(Cat(kept, self.values)),
            self.valid.eq(self.values_valid & (came == parts - 1)),
        ]
        with m.If(self.values_valid):
            m.d.sync += [kept.eq(self.flit[width:]), came.eq(Mux(came == parts - 1, 0, came + 1))]
        return m


class SumChain(Component):
    """Adds partial sums of a cluster to those that come down the column; the first row has none to add to."""

    def __init__(self, sizes: FabricSizes, is_first: bool) -> None:
        self.sizes, self.values, self.is_first = sizes, sizes.sum_values, is_first
        values = self.values
        super().__init__({"above": In(32 * values), "own": In(32 * values), "total": Out(32 * values)})

    def elaborate(self, platform: object) -> Module:
        """An adder per value."""
        m = Module()
        if self.is_first:
            m.d.comb += self.total.eq(self.own)
            return m
        for index in range(self.values):
            adder = place(m, f"adder_{index}", Fp32Adder(canonical=True, products=self.sizes.products), "sum_adder")
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
