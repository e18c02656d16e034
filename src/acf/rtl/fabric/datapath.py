"""Multiply and accumulate: what a unit does with the rows that its port fetched, and the two banks of its sums."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.arithmetic.add import Fp32Adder
from acf.rtl.arithmetic.multiply import Bf16Multiplier
from acf.rtl.fabric.bits import clear_lowest, delayed, lowest_set, masked
from acf.rtl.fabric.sizes import FabricSizes


class SumDatapath(Component):
    """``lanes`` multipliers and adders behind the walk by ``datapath_delay`` cycles.

    A pair with a zero or a subnormal in it leaves the sum as it is. ``drain`` reads a word of a bank and clears it;
    the word is there one cycle later.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        super().__init__(
            {
                "operation": In(sizes.operation),
                "fetched_valid": In(1),
                "fetched": In(sizes.fetched),
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
        with m.If(self.fetched_valid):
            m.d.sync += buffer.eq(self.fetched)
        loads = delayed(m, self.operation, sizes.datapath_delay - 1, "operation")
        multiplies = Signal(sizes.operation)
        m.d.sync += multiplies.eq(loads)
        value, factors, column = self._operands(m, loads, buffer)
        meets = Signal(sizes.operation)
        m.d.comb += [meets.eq(multiplies), meets.address.eq(multiplies.address + column)]
        adds = Signal(sizes.operation)
        m.d.sync += adds.eq(meets)
        sums, totals, effectual = self._lanes(m, meets, value, factors)
        banks = [self._bank(m, index, meets, adds, totals, effectual) for index in (0, 1)]
        drained_bank = Signal()
        m.d.sync += drained_bank.eq(self.drain_bank)
        read = Signal(32 * lanes)
        m.d.comb += [
            read.eq(Mux(adds.bank, banks[1], banks[0])),
            self.drained.eq(Mux(drained_bank, banks[1], banks[0])),
        ]
        if (
            not sizes.skips_both and sizes.shape.units_per_port > 1
        ):  # the same word comes again after two cycles at least
            m.d.comb += sums.eq(read)
            return m
        latest, latest_address, latest_bank = Signal(32 * lanes), Signal.like(adds.address), Signal()
        latest_effectual = Signal(lanes)
        m.d.sync += [
            latest.eq(totals),
            latest_address.eq(adds.address),
            latest_bank.eq(adds.bank),
            latest_effectual.eq(effectual),
        ]
        same = (latest_address == adds.address) & (latest_bank == adds.bank)
        for lane in range(lanes):
            bits = slice(32 * lane, 32 * lane + 32)
            m.d.comb += sums[bits].eq(Mux(same & latest_effectual[lane], latest[bits], read[bits]))
        return m

    def _operands(self, m: Module, loads: Any, buffer: Any) -> tuple[Value, Value, Value]:
        """The value, the values of the block that meet it in this cycle, and the column of the first of them.

        A row is taken from its beginning, ``lanes`` at a time; where zeros of blocks are skipped, one non-zero a cycle:
        the next one of a packed row, or the one at the lowest place left.
        """
        sizes, lanes = self.sizes, self.sizes.shape.lanes
        value, row = Signal(16), Signal(16 * sizes.shape.tile)
        if not sizes.skips_both:
            with m.If(loads.valid):
                m.d.sync += row.eq(row >> 16 * lanes)
                with m.If(loads.start):
                    m.d.sync += [value.eq(buffer.value), row.eq(buffer.row)]
            return value, row[: 16 * lanes], Const(0)
        mask, packed = Signal(sizes.shape.tile), Signal()
        number, column = Signal(range(sizes.shape.tile)), Signal(range(sizes.shape.tile))
        with m.If(loads.valid):
            m.d.sync += [mask.eq(clear_lowest(mask)), number.eq(number + 1)]
            with m.If(loads.start):
                m.d.sync += [
                    value.eq(buffer.value),
                    row.eq(buffer.row),
                    mask.eq(buffer.mask),
                    packed.eq(buffer.packed),
                    number.eq(0),
                ]
        m.d.comb += column.eq(lowest_set(mask))
        factor = row.word_select(Mux(packed, number, column), 16)
        return value, masked(factor, mask.any()), column

    def _lanes(self, m: Module, meets: Signal, value: Value, factors: Value) -> tuple[Signal, Signal, Signal]:
        """Sums that go in, totals that come out, and which lanes have one."""
        lanes = self.sizes.shape.lanes
        sums, totals, effectual = Signal(32 * lanes), Signal(32 * lanes), Signal(lanes)
        for lane in range(lanes):
            multiplier, adder = Bf16Multiplier(), Fp32Adder()
            m.submodules[f"multiplier_{lane}"], m.submodules[f"adder_{lane}"] = multiplier, adder
            factor, product = factors[16 * lane : 16 * lane + 16], Signal(32, name=f"product_{lane}")
            is_effectual = meets.valid & value[7:15].any() & factor[7:15].any()
            m.d.comb += [multiplier.a.eq(value), multiplier.b.eq(factor)]
            m.d.sync += effectual[lane].eq(is_effectual)
            with m.If(is_effectual):
                m.d.sync += product.eq(multiplier.product)
            bits = slice(32 * lane, 32 * lane + 32)
            m.d.comb += [adder.x.eq(sums[bits]), adder.y.eq(product), totals[bits].eq(adder.total)]
        return sums, totals, effectual

    def _bank(self, m: Module, index: int, meets: Signal, adds: Signal, totals: Signal, effectual: Signal) -> Signal:
        """One bank, a block RAM: the unit's or, while it drains, the cluster's."""
        lanes = self.sizes.shape.lanes
        m.submodules[f"bank_{index}"] = memory = Memory(shape=32 * lanes, depth=max(2, self.sizes.sum_words), init=[])
        write, read = memory.write_port(granularity=32), memory.read_port()
        drains = Signal(name=f"drains_{index}")
        writes = Signal(lanes, name=f"writes_{index}")
        mine = adds.bank == index
        m.d.comb += [
            drains.eq(self.drain & (self.drain_bank == index)),
            read.addr.eq(Mux(drains, self.drain_address, meets.address)),
            write.addr.eq(Mux(drains, self.drain_address, adds.address)),
            write.data.eq(Mux(drains, 0, totals)),
            writes.eq(effectual & mine.replicate(lanes)),
            write.en.eq(Mux(drains, Cat(1).replicate(lanes), writes)),
        ]
        return read.data
