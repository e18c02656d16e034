"""The datapath of an SCU that holds the sums of its rows in registers while it walks a block."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.memory import Memory

from acf.rtl.design.fabric.datapath import SumDatapath
from acf.rtl.design.primitives.bits import masked, word_of


class HeldSumDatapath(SumDatapath):
    """`SumDatapath` with a register for every sum of a block's rows.

    The first value of a row in a block reads its sums from the bank, the last one writes them back; every MAC between
    them reads and writes registers alone. A row of the block stays in its buffer until another k comes.
    """

    def _load_buffer(self, m: Module, buffer: Any) -> None:
        """Load the value of every answer of the port, and the row where the answer has another one."""
        with m.If(self.fetched_valid):
            m.d.sync += buffer.value.eq(self.fetched.value)
            with m.If(self.fetched.fresh):
                m.d.sync += buffer.row.eq(self.fetched.row)

    def _accumulate(self, m: Module, meets: Any, adds: Any, value: Value, factors: Value) -> tuple[Any, Any]:
        sizes, lanes = self.sizes, self.sizes.shape.lanes
        sums, totals, effectual = self._lanes(m, meets, value, factors)
        held = [Signal(self.word, name=f"held_{index}") for index in range(sizes.held_words)]
        results, own = Signal(self.word), Signal(self.word)
        banks = [self._held_bank(m, index, meets, adds, results) for index in (0, 1)]
        index = adds.address[: (sizes.held_words - 1).bit_length()]
        flat = Signal(sizes.held_words * self.word.size)
        for number, word in enumerate(held):
            m.d.comb += flat[number * self.word.size : (number + 1) * self.word.size].eq(word)
        m.d.comb += own.eq(word_of(flat, index, self.word.size))
        # A bank that is written and read at once gives the old word; the new one is held.
        written_last, written_address, written_bank = Signal(), Signal.like(adds.address), Signal()
        from_bank = Signal()
        m.d.sync += written_last.eq(adds.valid & adds.last)
        with m.If(adds.valid & adds.last):
            m.d.sync += [written_address.eq(adds.address), written_bank.eq(adds.bank)]
        is_held = written_last & (written_address == adds.address) & (written_bank == adds.bank)
        m.d.comb += [
            from_bank.eq(adds.first & ~is_held),
            sums.eq(Mux(from_bank, Mux(adds.bank, banks[1], banks[0]), own)),
        ]
        for lane in range(lanes):
            m.d.comb += results[lane].eq(Mux(effectual[lane], totals[lane], sums[lane]))
        for number, word in enumerate(held):  # one clock gate per word: one per lane would cost more than it saves
            with m.If(adds.valid & (index == number)):
                m.d.sync += word.eq(results)
        return banks[0], banks[1]

    def _held_bank(self, m: Module, index: int, meets: Any, adds: Any, results: Any) -> Any:
        """One bank: read by the first value of a row, written by the last, or drained by the cluster."""
        lanes = self.sizes.shape.lanes
        m.submodules[f"bank_{index}"] = memory = Memory(shape=self.word, depth=max(2, self.sizes.sum_words), init=[])
        write, read = memory.write_port(), memory.read_port()
        drains = Signal(name=f"drains_{index}")
        m.d.comb += [
            drains.eq(self.drain & (self.drain_bank == index)),
            read.addr.eq(Mux(drains, self.drain_address, meets.address)),
            read.en.eq(drains | (meets.valid & meets.first & (meets.bank == index))),
            write.addr.eq(Mux(drains, self.drain_address, adds.address)),
            write.data.eq(results),
            write.en.eq(drains | (adds.valid & adds.last & (adds.bank == index))),
        ]
        for lane in range(lanes):
            m.d.comb += [
                write.data[lane].sign.eq(results[lane].sign & ~drains),
                write.data[lane].kind.eq(masked(results[lane].kind, ~drains)),
            ]
        return read.data
