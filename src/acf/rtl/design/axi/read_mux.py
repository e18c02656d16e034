"""Two AXI4 read masters on one bus."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.axi.signatures import axi4_read
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.primitives.fifo import BoundedFifo

_REQUEST = ("arid", "araddr", "arlen", "arsize", "arburst", "arcache", "arprot")
_ANSWER = ("rid", "rresp", "rdata", "rlast")


class ReadMux(Component):
    """Requests of ``first`` and ``second`` take turns on ``bus``; a queue of owners says whose burst comes next.

    All requests have one AXI id, so bursts come in the order of their requests. A request that was offered and not
    taken stays the one that is offered.
    """

    def __init__(self, spec: AxiSpec) -> None:
        self.spec = spec
        signature = axi4_read(spec)
        super().__init__({"first": In(signature), "second": In(signature), "bus": Out(signature)})

    def elaborate(self, platform: object) -> Module:
        """No register lies between the masters and the bus."""
        m = Module()
        m.submodules.owners = owners = BoundedFifo(1, 2 * self.spec.outstanding_reads)
        turn, waits, held, chosen = Signal(), Signal(), Signal(), Signal()
        masters, bus = (self.first, self.second), self.bus
        free_choice = Mux(turn, self.second.arvalid, ~self.first.arvalid)
        asks, ends = Signal(), Signal()
        m.d.comb += [
            chosen.eq(Mux(waits, held, free_choice)),
            bus.arvalid.eq(Mux(chosen, self.second.arvalid, self.first.arvalid) & owners.write_ready),
            asks.eq(bus.arvalid & bus.arready),
            owners.write_valid.eq(asks),
            owners.write_data.eq(chosen),
            bus.rready.eq(Mux(owners.read_data, self.second.rready, self.first.rready) & owners.read_valid),
            ends.eq(bus.rvalid & bus.rready & bus.rlast),
            owners.read_ready.eq(ends),
        ]
        m.d.sync += [waits.eq(bus.arvalid & ~bus.arready), held.eq(chosen)]
        with m.If(asks):
            m.d.sync += turn.eq(~chosen)
        m.d.comb += [
            getattr(bus, name).eq(Mux(chosen, *(getattr(each, name) for each in masters[::-1]))) for name in _REQUEST
        ]
        for number, master in enumerate(masters):
            m.d.comb += [
                master.arready.eq(asks & (chosen == number)),
                master.rvalid.eq(bus.rvalid & owners.read_valid & (owners.read_data == number)),
                *(getattr(master, name).eq(getattr(bus, name)) for name in _ANSWER),
            ]
        return m
