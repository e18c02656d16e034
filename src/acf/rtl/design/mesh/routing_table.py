"""A double-buffered routing table: one bank is read while the other is written; a swap exchanges them at once."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out


class RoutingTable(Component):
    """``lookups`` reads per cycle: the outputs, a bit each, by which a flit of each of ``ids`` leaves, in ``ports``.

    ``write`` puts ``write_ports`` at ``write_id`` of the bank that is not in use; ``swap`` makes it the one in use from
    the next cycle on, for all reads alike. ``bank`` is the one in use, at first with the entries of ``initial``.
    """

    def __init__(self, lookups: int = 5, outputs: int = 5, id_bits: int = 6, initial: Sequence[int] = ()) -> None:
        self.outputs, self.id_bits, self.initial = outputs, id_bits, list(initial)
        super().__init__(
            {
                "ids": In(id_bits).array(lookups),
                "ports": Out(outputs).array(lookups),
                "write": In(1),
                "write_id": In(id_bits),
                "write_ports": In(outputs),
                "swap": In(1),
                "bank": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """LUTRAM with a read port per lookup; the bank is the highest address bit."""
        m = Module()
        m.submodules.entries = entries = Memory(shape=self.outputs, depth=2 << self.id_bits, init=self.initial)
        write = entries.write_port()
        m.d.comb += [
            write.en.eq(self.write),
            write.addr.eq(Cat(self.write_id, ~self.bank)),
            write.data.eq(self.write_ports),
        ]
        for asked, found in zip(self.ids, self.ports, strict=True):
            read = entries.read_port(domain="comb")
            m.d.comb += [read.addr.eq(Cat(asked, self.bank)), found.eq(read.data)]
        with m.If(self.swap):
            m.d.sync += self.bank.eq(~self.bank)
        return m
