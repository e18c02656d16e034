"""Several readers on one AXI4 master: address requests by turns, data to whoever asked."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.axi.signatures import axi4_read
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.primitives.bits import any_of
from acf.rtl.design.primitives.fifo import BoundedFifo
from acf.rtl.design.primitives.round_robin import after, first_from, index_of, select


class ReadArbiter(Component):
    """Passes the bursts of ``clients`` on to ``bus``, round-robin and without delay.

    All bursts have one AXI id, so data come in the order of the requests: a FIFO of the bursts in flight, at most
    ``outstanding_reads``, tells whose they are. A request that was shown to the bus is not taken back.
    """

    def __init__(self, spec: AxiSpec, clients: int) -> None:
        self.spec, self.count = spec, clients
        super().__init__({"clients": In(axi4_read(spec)).array(clients), "bus": Out(axi4_read(spec))})

    def elaborate(self, platform: object) -> Module:
        """A choice that is kept until the bus takes it, and the FIFO of owners."""
        m, count = Module(), self.count
        clients = [self.clients[number] for number in range(count)]
        m.submodules.owners = owners = BoundedFifo(bits_for(count - 1), self.spec.outstanding_reads)
        wants, turn = Signal(count), Signal(range(max(2, count)))
        chosen, kept, is_kept = Signal(count), Signal(count), Signal()
        m.d.comb += wants.eq(Cat(*(client.arvalid for client in clients)))
        first = first_from(m, wants, turn, "first")
        asks = Signal()
        m.d.comb += [
            chosen.eq(Mux(is_kept, kept, first)),
            self.bus.arvalid.eq((wants & chosen).any() & owners.write_ready),
            asks.eq(self.bus.arvalid & self.bus.arready),
            owners.write_valid.eq(asks),
            owners.write_data.eq(index_of(chosen)),
            owners.read_ready.eq(self.bus.rvalid & self.bus.rready & self.bus.rlast),
        ]
        m.d.sync += [is_kept.eq(self.bus.arvalid & ~self.bus.arready), kept.eq(chosen)]
        with m.If(asks):
            m.d.sync += turn.eq(after(chosen))
        for name in ("arid", "araddr", "arlen", "arsize", "arburst", "arcache", "arprot"):
            m.d.comb += getattr(self.bus, name).eq(select(chosen, [getattr(client, name) for client in clients]))
        is_mine = [owners.read_valid & (owners.read_data == number) for number in range(count)]
        m.d.comb += self.bus.rready.eq(
            any_of([mine & client.rready for mine, client in zip(is_mine, clients, strict=True)])
        )
        for number, client in enumerate(clients):
            m.d.comb += [
                client.arready.eq(self.bus.arready & chosen[number] & owners.write_ready),
                client.rvalid.eq(self.bus.rvalid & is_mine[number]),
            ]
            m.d.comb += [
                getattr(client, name).eq(getattr(self.bus, name)) for name in ("rid", "rresp", "rdata", "rlast")
            ]
        return m
