"""The datapath of an SCU: multiply the fetched rows and accumulate them in two banks of sums."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.arithmetic.add import NumberAdder
from acf.rtl.design.arithmetic.multiply import NumberMultiplier
from acf.rtl.design.arithmetic.number import NUMBER, packed
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import clear_lowest, delayed, lowest_set, masked, word_of


class SumDatapath(Component):
    """``lanes`` multipliers and adders that follow the walker by ``datapath_delay`` cycles.

    A pair with a zero or a subnormal factor leaves the sum unchanged. ``drain`` reads a word of a bank and clears it;
    the word is valid one cycle later, as float32 bits. Within the banks a sum is a `NUMBER`.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        self.word = data.ArrayLayout(NUMBER, sizes.shape.lanes)
        super().__init__(
            {
                "operation": In(sizes.operation),
                "fetched_valid": In(1),
                "fetched": In(sizes.fetched),
                **({"fetched_fresh": In(1)} if sizes.holds_sums else {}),
                "drain": In(1),
                "drain_bank": In(1),
                "drain_address": In(bits_for(sizes.sum_words - 1)),
                "drained": Out(32 * sizes.shape.lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Load a row, multiply (and read the sums), add (and write them back)."""
        m, sizes = Module(), self.sizes
        lanes = sizes.shape.lanes
        buffer = Signal(sizes.fetched)
        self._load_buffer(m, buffer)
        loads = delayed(m, self.operation, sizes.datapath_delay - 1, "operation")
        multiplies = Signal(sizes.operation)
        m.d.sync += multiplies.eq(loads)
        value, factors, column, is_there = self._operands(m, loads, buffer)
        meets = Signal(sizes.operation)
        m.d.comb += [meets.eq(multiplies), meets.valid.eq(multiplies.valid & is_there)]
        if sizes.skips_both:
            m.d.comb += meets.address.eq(Cat(column, multiplies.address[len(column) :]))
        adds = Signal(sizes.operation)
        m.d.sync += adds.eq(meets)
        banks = self._accumulate(m, meets, adds, value, factors)
        drained_bank, drained = Signal(), Signal(self.word)
        m.d.sync += drained_bank.eq(self.drain_bank)
        m.d.comb += drained.eq(Mux(drained_bank, banks[1], banks[0]))
        m.d.comb += self.drained.eq(Cat(*(packed(m, drained[lane], f"drained_{lane}") for lane in range(lanes))))
        return m

    def _load_buffer(self, m: Module, buffer: Any) -> None:
        """Load what the port answers."""
        with m.If(self.fetched_valid):
            m.d.sync += buffer.eq(self.fetched)

    def _accumulate(self, m: Module, meets: Any, adds: Any, value: Value, factors: Value) -> tuple[Any, Any]:
        """Multiply, add, and write every sum back to its bank; returns the words that both banks give."""
        sizes, lanes = self.sizes, self.sizes.shape.lanes
        sums, totals, effectual = self._lanes(m, meets, value, factors)
        banks = [self._bank(m, index, meets, adds, totals, effectual) for index in (0, 1)]
        read = Signal(self.word)
        m.d.comb += read.eq(Mux(adds.bank, banks[1], banks[0]))
        if not sizes.skips_both and sizes.shape.scus_per_port > 1:
            m.d.comb += sums.eq(read)  # no forwarding: the same word returns after two cycles at the earliest
            return banks[0], banks[1]
        latest, latest_address, latest_bank = Signal(self.word), Signal.like(adds.address), Signal()
        latest_effectual, again = Signal(lanes), Signal()
        m.d.sync += [
            latest.eq(totals),
            latest_address.eq(adds.address),
            latest_bank.eq(adds.bank),
            latest_effectual.eq(effectual),
        ]
        m.d.comb += again.eq((latest_address == adds.address) & (latest_bank == adds.bank))
        for lane in range(lanes):
            m.d.comb += sums[lane].eq(Mux(again & latest_effectual[lane], latest[lane], read[lane]))
        return banks[0], banks[1]

    def _operands(self, m: Module, loads: Any, buffer: Any) -> tuple[Value, Value, Value, Value]:
        """The serial value, the ``lanes`` block values to multiply it by, the column of the first, their validity.

        A row is read from its beginning, ``lanes`` values a cycle. Where zeros of blocks are skipped it is one non-zero
        a cycle: the next one of a packed row, or the one in the lowest column left.
        """
        sizes, lanes = self.sizes, self.sizes.shape.lanes
        value, row = Signal(16), Signal(16 * sizes.shape.tile)
        if not sizes.skips_both:
            chunk = Signal(range(max(2, sizes.chunks)))  # selects in a row that stays: shifting would clock all of it
            with m.If(loads.valid):
                m.d.sync += chunk.eq(chunk + 1)
                with m.If(loads.start):
                    m.d.sync += [value.eq(buffer.value), chunk.eq(0)]
                    m.d.sync += row.eq(buffer.row)
            return value, word_of(row, chunk, 16 * lanes), Const(0), Const(1)
        mask, packed_row = Signal(sizes.shape.tile), Signal()
        number, column = Signal(range(sizes.shape.tile)), Signal(range(sizes.shape.tile))
        with m.If(loads.valid):
            m.d.sync += [mask.eq(clear_lowest(mask)), number.eq(number + 1)]
            with m.If(loads.start):
                m.d.sync += [
                    value.eq(buffer.value),
                    row.eq(buffer.row),
                    mask.eq(buffer.mask),
                    packed_row.eq(buffer.packed),
                    number.eq(buffer.first),
                ]
        m.d.comb += column.eq(lowest_set(mask))
        place = Signal(range(sizes.shape.tile))
        m.d.comb += place.eq(Mux(packed_row, number, column))
        return value, word_of(row, place, 16), column, mask.any()

    def _lanes(self, m: Module, meets: Any, value: Value, factors: Value) -> tuple[Any, Any, Signal]:
        """Sums that go in, totals that come out, and the lanes that have one."""
        lanes = self.sizes.shape.lanes
        sums, totals, effectual = Signal(self.word), Signal(self.word), Signal(lanes)
        for lane in range(lanes):
            multiplier, adder = NumberMultiplier(), NumberAdder(self.sizes.products)
            m.submodules[f"multiplier_{lane}"], m.submodules[f"adder_{lane}"] = multiplier, adder
            factor, product = Signal(16, name=f"factor_{lane}"), Signal(NUMBER, name=f"product_{lane}")
            m.d.comb += factor.eq(factors[16 * lane : 16 * lane + 16])
            is_effectual = meets.valid & value[7:15].any() & factor[7:15].any()
            m.d.comb += [multiplier.a.eq(value), multiplier.b.eq(factor)]
            m.d.sync += effectual[lane].eq(is_effectual)
            with m.If(is_effectual):
                m.d.sync += product.eq(multiplier.product)
            m.d.comb += [adder.x.eq(sums[lane]), adder.y.eq(product), totals[lane].eq(adder.total)]
        return sums, totals, effectual

    def _bank(self, m: Module, index: int, meets: Any, adds: Any, totals: Any, effectual: Signal) -> Any:
        """One bank, a block RAM, used by the SCU or drained by the cluster. Clearing writes the kind ``ZERO``."""
        lanes = self.sizes.shape.lanes
        m.submodules[f"bank_{index}"] = memory = Memory(shape=self.word, depth=max(2, self.sizes.sum_words), init=[])
        write, read = memory.write_port(granularity=1), memory.read_port()
        drains = Signal(name=f"drains_{index}")
        writes = Signal(lanes, name=f"writes_{index}")
        mine = adds.bank == index
        m.d.comb += [
            drains.eq(self.drain & (self.drain_bank == index)),
            read.addr.eq(Mux(drains, self.drain_address, meets.address)),
            write.addr.eq(Mux(drains, self.drain_address, adds.address)),
            write.data.eq(totals),
            writes.eq(effectual & mine.replicate(lanes)),
            write.en.eq(writes | drains.replicate(lanes)),
        ]
        for lane in range(lanes):
            m.d.comb += [
                write.data[lane].sign.eq(totals[lane].sign & ~drains),
                write.data[lane].kind.eq(masked(totals[lane].kind, ~drains)),
            ]
        return read.data
