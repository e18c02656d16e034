"""Multiply and accumulate: what a unit does with the rows that its port fetched, and the two banks of its sums."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.arithmetic.add import Fp32Adder
from acf.rtl.arithmetic.multiply import Bf16Multiplier
from acf.rtl.fabric.bits import delayed
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
        value, row = Signal(16), Signal(16 * sizes.shape.tile)
        m.d.sync += multiplies.eq(loads)
        with m.If(loads.valid):
            m.d.sync += row.eq(row >> 16 * lanes)
            with m.If(loads.start):
                m.d.sync += [value.eq(buffer.value), row.eq(buffer.row)]
        adds = Signal(sizes.operation)
        m.d.sync += adds.eq(multiplies)
        sums, totals, effectual = self._lanes(m, multiplies, value, row)
        banks = [self._bank(m, index, multiplies, adds, totals, effectual) for index in (0, 1)]
        drained_bank = Signal()
        m.d.sync += drained_bank.eq(self.drain_bank)
        read = Signal(32 * lanes)
        m.d.comb += [
            read.eq(Mux(adds.bank, banks[1], banks[0])),
            self.drained.eq(Mux(drained_bank, banks[1], banks[0])),
        ]
        if sizes.shape.units_per_port > 1:  # the same word comes again after two cycles at least
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

    def _lanes(self, m: Module, multiplies: Signal, value: Signal, row: Signal) -> tuple[Signal, Signal, Signal]:
        """Sums that go in, totals that come out, and which lanes have one."""
        lanes = self.sizes.shape.lanes
        sums, totals, effectual = Signal(32 * lanes), Signal(32 * lanes), Signal(lanes)
        for lane in range(lanes):
            multiplier, adder = Bf16Multiplier(), Fp32Adder()
            m.submodules[f"multiplier_{lane}"], m.submodules[f"adder_{lane}"] = multiplier, adder
            factor, product = row[16 * lane : 16 * lane + 16], Signal(32, name=f"product_{lane}")
            is_effectual = multiplies.valid & value[7:15].any() & factor[7:15].any()
            m.d.comb += [multiplier.a.eq(value), multiplier.b.eq(factor)]
            m.d.sync += effectual[lane].eq(is_effectual)
            with m.If(is_effectual):
                m.d.sync += product.eq(multiplier.product)
            bits = slice(32 * lane, 32 * lane + 32)
            m.d.comb += [adder.x.eq(sums[bits]), adder.y.eq(product), totals[bits].eq(adder.total)]
        return sums, totals, effectual

    def _bank(
        self, m: Module, index: int, multiplies: Signal, adds: Signal, totals: Signal, effectual: Signal
    ) -> Signal:
        """One bank, a block RAM: the unit's or, while it drains, the cluster's."""
        lanes = self.sizes.shape.lanes
        m.submodules[f"bank_{index}"] = memory = Memory(shape=32 * lanes, depth=max(2, self.sizes.sum_words), init=[])
        write, read = memory.write_port(granularity=32), memory.read_port()
        drains = Signal(name=f"drains_{index}")
        writes = Signal(lanes, name=f"writes_{index}")
        mine = adds.bank == index
        m.d.comb += [
            drains.eq(self.drain & (self.drain_bank == index)),
            read.addr.eq(Mux(drains, self.drain_address, multiplies.address)),
            write.addr.eq(Mux(drains, self.drain_address, adds.address)),
            write.data.eq(Mux(drains, 0, totals)),
            writes.eq(effectual & mine.replicate(lanes)),
            write.en.eq(Mux(drains, Cat(1).replicate(lanes), writes)),
        ]
        return read.data
