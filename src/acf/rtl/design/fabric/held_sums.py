"""Sums of a group of columns: registers for the rows of an SCU, and two banks behind them."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.arithmetic.number import NUMBER
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import masked


class HeldSums(Component):
    """The ``sums`` of ``columns`` columns that operation ``adds`` needs; ``results`` are what it makes of them.

    ``meets`` is the operation one cycle before it adds. The first value of a row in a block reads its sums from the
    bank, the last one writes them back; those between them read and write registers alone. What is not ``used`` by an
    operation neither switches nor is clocked. ``drain`` reads a word of a bank and clears it; ``drained`` follows.
    """

    def __init__(self, sizes: FabricSizes, columns: int) -> None:
        self.sizes = sizes
        self.word = data.ArrayLayout(NUMBER, columns)
        super().__init__(
            {
                "meets": In(sizes.operation),
                "adds": In(sizes.operation),
                "meets_used": In(1),
                "adds_used": In(1),
                "results": In(self.word),
                "sums": Out(self.word),
                "drain": In(1),
                "drain_bank": In(1),
                "drain_address": In(bits_for(sizes.sum_words - 1)),
                "drained": Out(self.word),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Registers, banks, and the choice between them."""
        m, rows, adds = Module(), self.sizes.scu_rows, self.adds
        row_bits = (rows - 1).bit_length()
        reads, writes = Signal(), Signal()
        m.d.comb += [reads.eq(self.meets.valid & self.meets_used), writes.eq(adds.valid & self.adds_used)]
        banks = [self._bank(m, index, reads, writes) for index in (0, 1)]
        row = Signal(row_bits)  # stays where this group is not used, so that nothing switches behind it
        with m.If(reads):
            m.d.sync += row.eq(self.meets.address[:row_bits])
        held = [Signal(self.word, name=f"held_{number}") for number in range(rows)]
        for number, word in enumerate(held):
            with m.If(writes & (row == number)):
                m.d.sync += word.eq(self.results)
        # A bank that is written and read at once gives the old word; the new one is held.
        written, written_address, written_bank = Signal(), Signal.like(adds.address), Signal()
        m.d.sync += written.eq(writes & adds.last)
        with m.If(writes & adds.last):
            m.d.sync += [written_address.eq(adds.address), written_bank.eq(adds.bank)]
        is_held = written & (written_address == adds.address) & (written_bank == adds.bank)
        drained_bank, from_bank = Signal(), Signal()
        m.d.sync += drained_bank.eq(self.drain_bank)
        m.d.comb += [
            from_bank.eq(adds.first & ~is_held),
            self.sums.eq(Mux(from_bank, Mux(adds.bank, banks[1], banks[0]), _chosen(held, row))),
            self.drained.eq(Mux(drained_bank, banks[1], banks[0])),
        ]
        return m

    def _bank(self, m: Module, index: int, reads: Value, writes: Value) -> Any:
        """One bank: read by the first value of a row, written by the last, or drained by the cluster."""
        m.submodules[f"bank_{index}"] = memory = Memory(shape=self.word, depth=max(2, self.sizes.sum_words), init=[])
        write, read = memory.write_port(), memory.read_port()
        drains = Signal(name=f"drains_{index}")
        m.d.comb += [
            drains.eq(self.drain & (self.drain_bank == index)),
            read.addr.eq(Mux(drains, self.drain_address, self.meets.address)),
            read.en.eq(drains | (reads & self.meets.first & (self.meets.bank == index))),
            write.addr.eq(Mux(drains, self.drain_address, self.adds.address)),
            write.data.eq(self.results),
            write.en.eq(drains | (writes & self.adds.last & (self.adds.bank == index))),
        ]
        for column in range(len(self.results)):
            m.d.comb += [
                write.data[column].sign.eq(self.results[column].sign & ~drains),
                write.data[column].kind.eq(masked(self.results[column].kind, ~drains)),
            ]
        return read.data


def _chosen(words: Sequence[Any], index: Value) -> Value:
    """Word number ``index``; its lowest bit, which changes most, switches the last multiplexer alone."""
    values: list[Value] = [Cat(word) for word in words]
    for bit in reversed(range(len(index))):
        half = len(values) // 2
        values = [Mux(index[bit], odd, even) for even, odd in zip(values[:half], values[half:], strict=True)]
    return values[0]
