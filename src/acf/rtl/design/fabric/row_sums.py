"""Sums of an SCU: registers for the one row that it walks, and two banks behind them."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.arithmetic.number import NUMBER
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import masked


class RowSums(Component):
    """The ``sums`` of all lanes that operation ``adds`` needs; ``results`` are what it makes of them.

    ``loads`` is the operation one cycle before it adds. The first value of a row in a block reads its sums from the
    bank, the last one writes them back; those between them read and write the registers of the sums alone. ``drain``
    reads a word of a bank and clears it; ``drained`` follows.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        self.word = data.ArrayLayout(NUMBER, sizes.shape.lanes)
        super().__init__(
            {
                "loads": In(sizes.operation),
                "adds": In(sizes.operation),
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
        m, adds = Module(), self.adds
        banks = [self._bank(m, index) for index in (0, 1)]
        # A bank that is written and read at once gives the old word; the new one is in the registers.
        written, written_address, written_bank = Signal(), Signal.like(adds.address), Signal()
        m.d.sync += written.eq(adds.valid & adds.last)
        with m.If(adds.valid & adds.last):
            m.d.sync += [written_address.eq(adds.address), written_bank.eq(adds.bank)]
        is_held = written & (written_address == adds.address) & (written_bank == adds.bank)
        drained_bank, from_bank = Signal(), Signal()
        m.d.sync += drained_bank.eq(self.drain_bank)
        m.d.comb += [
            from_bank.eq(adds.first & ~is_held),
            self.sums.eq(Mux(from_bank, Mux(adds.bank, banks[1], banks[0]), self._held(m))),
            self.drained.eq(Mux(drained_bank, banks[1], banks[0])),
        ]
        return m

    def _held(self, m: Module) -> Value:
        """The registers: of every part of a row, where its columns are more than the SCU has lanes, those of one."""
        parts = self.sizes.chunks
        held = [Signal(self.word, name=f"held_{part}", reset_less=True) for part in range(parts)]
        part = self.adds.address[: (parts - 1).bit_length()]
        chosen: Value = held[0].as_value()
        for number, word in enumerate(held):
            with m.If(self.adds.valid & (part == number)):
                m.d.sync += word.eq(self.results)
            if number:
                chosen = Mux(part == number, word, chosen)
        return chosen

    def _bank(self, m: Module, index: int) -> Any:
        """One bank: read by the first value of a row, written by the last, or drained by the cluster."""
        m.submodules[f"bank_{index}"] = memory = Memory(shape=self.word, depth=max(2, self.sizes.sum_words), init=[])
        write, read = memory.write_port(), memory.read_port()
        drains = Signal(name=f"drains_{index}")
        m.d.comb += [
            drains.eq(self.drain & (self.drain_bank == index)),
            read.addr.eq(Mux(drains, self.drain_address, self.loads.address)),
            read.en.eq(drains | (self.loads.valid & self.loads.first & (self.loads.bank == index))),
            write.addr.eq(Mux(drains, self.drain_address, self.adds.address)),
            write.data.eq(self.results),
            write.en.eq(drains | (self.adds.valid & self.adds.last & (self.adds.bank == index))),
        ]
        for column in range(len(self.results)):
            m.d.comb += [
                write.data[column].sign.eq(self.results[column].sign & ~drains),
                write.data[column].kind.eq(masked(self.results[column].kind, ~drains)),
            ]
        return read.data
