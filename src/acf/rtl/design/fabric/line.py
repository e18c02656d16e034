"""Lines of routers: pipelines that multicast packets, and those that return credits and results."""

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import delayed, delayed_flit
from acf.rtl.design.primitives.unit_gates import stopped_unless, under_way


class PacketLine(Component):
    """Multicast from a controller past ``places`` routers, ``hop_cycles`` from one to the next.

    The router at distance d copies a flit to its cluster ``hop_cycles`` x (d + 1) after it was read, if the cluster is
    a destination, and forwards it while destinations remain. Headers travel only as far as their destination, so a
    line has fewer wires the farther it goes.
    """

    def __init__(self, sizes: FabricSizes, places: int, serial: bool) -> None:
        self.sizes, self.places, self.serial = sizes, places, serial
        taken = {f"copy_{place}": Out(sizes.link(1, serial)) for place in range(places)}
        super().__init__({"sent": In(sizes.link(places, serial)), **taken})

    def elaborate(self, platform: object) -> Elaboratable:
        """One stage fewer before the first router: reading the flit was the first."""
        m, hop = Module(), self.sizes.shape.hop_cycles
        flit: Any = delayed_flit(m, self.sent, hop - 1, "hop_0")
        for place in range(self.places):
            self._copy(m, getattr(self, f"copy_{place}"), flit)
            if place + 1 < self.places:
                following = Signal(self.sizes.link(self.places - place - 1, self.serial), name=f"beyond_{place}")
                self._pass_on(m, following, flit)
                flit = delayed_flit(m, following, hop, f"hop_{place + 1}")
        return stopped_when_empty(m, self.sent.valid, hop * self.places, self.sizes)

    def _copy(self, m: Module, copy: Any, flit: Any) -> None:
        for name in ("last", "parallel", "packed", "reason", "data"):
            m.d.comb += copy[name].eq(flit[name])
        m.d.comb += [copy.valid.eq(flit.valid & flit.destinations[0]), copy.destinations.eq(flit.destinations[0])]
        if self.serial:
            m.d.comb += copy.headers.eq(flit.headers[: self.sizes.header.size])

    def _pass_on(self, m: Module, following: Any, flit: Any) -> None:
        for name in ("last", "parallel", "packed", "reason", "data"):
            m.d.comb += following[name].eq(flit[name])
        m.d.comb += [
            following.valid.eq(flit.valid & flit.destinations[1:].any()),
            following.destinations.eq(flit.destinations[1:]),
        ]
        if self.serial:
            m.d.comb += following.headers.eq(flit.headers[self.sizes.header.size :])


class CreditLine(Component):
    """Returns credits of ``places`` clusters to their controller; ``hop_cycles`` x (d + 1) from distance d."""

    def __init__(self, sizes: FabricSizes, places: int, width: int) -> None:
        self.sizes, self.places, self.width = sizes, places, width
        layout = data.ArrayLayout(width, places)
        super().__init__({"given": In(layout), "back": Out(layout)})

    def elaborate(self, platform: object) -> Elaboratable:
        """One stage fewer, since the controller's counter is one."""
        m, hop = Module(), self.sizes.shape.hop_cycles
        for place in range(self.places):
            m.d.comb += self.back[place].eq(delayed(m, self.given[place], hop * (place + 1) - 1, f"credit_{place}"))
        return stopped_when_empty(m, Value.cast(self.given).any(), hop * self.places, self.sizes)


class ResultLine(Component):
    """Results of a mesh row to its edge; time slots keep the flits of different clusters from colliding."""

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        columns = sizes.shape.mesh_columns
        self.layout = data.StructLayout({"valid": 1, "column": bits_for(columns - 1), "data": sizes.flit_bits})
        super().__init__(
            {
                "valid": In(columns),
                "results": In(data.ArrayLayout(sizes.flit_bits, columns)),
                "edge": Out(self.layout),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        """Every router merges the cluster's own flit with the one from farther away; only one is valid."""
        m = Module()
        flit: Any = None
        for place in reversed(range(self.sizes.shape.mesh_columns)):
            merged = Signal(self.layout, name=f"merged_{place}")
            own = self.valid[place]
            m.d.comb += [merged.valid.eq(own), merged.column.eq(place), merged.data.eq(self.results[place])]
            if flit is not None:
                m.d.comb += merged.valid.eq(own | flit.valid)
                with m.If(~own):
                    m.d.comb += [merged.column.eq(flit.column), merged.data.eq(flit.data)]
            flit = delayed_flit(m, merged, self.sizes.shape.hop_cycles, f"hop_{place}")
        m.d.comb += self.edge.eq(flit)
        cycles = self.sizes.shape.hop_cycles * self.sizes.shape.mesh_columns
        return stopped_when_empty(m, self.valid.any(), cycles, self.sizes)


class SumLine(Component):
    """The order to send partial sums, pipelined down a mesh column: ``hop_cycles`` from row to row."""

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        rows = sizes.shape.mesh_rows
        self.layout = data.StructLayout({"start": 1, "last": 1, "flit": bits_for(sizes.most_sum_flits)})
        super().__init__({"order": In(self.layout), "orders": Out(data.ArrayLayout(self.layout, rows))})

    def elaborate(self, platform: object) -> Elaboratable:
        """The first row's order is delayed by the latency of the datapath."""
        m = Module()
        order: Value = delayed(m, self.order, self.sizes.datapath_delay + 1, "datapath")
        for row in range(self.sizes.shape.mesh_rows):
            m.d.comb += self.orders[row].eq(order)
            if row + 1 < self.sizes.shape.mesh_rows:
                order = delayed(m, order, self.sizes.shape.hop_cycles, f"hop_{row}")
        cycles = self.sizes.datapath_delay + 1 + self.sizes.shape.hop_cycles * self.sizes.shape.mesh_rows
        return stopped_when_empty(m, self.order.start, cycles, self.sizes)


def stopped_when_empty(m: Module, enters: Value, cycles: int, sizes: FabricSizes) -> Elaboratable:
    """A line whose clock stops when all that entered has passed it, ``cycles`` later; if units are gated."""
    return stopped_unless(under_way(m, enters, cycles), m) if sizes.gates_units else m


def turns(m: Module, run: Value, period: int, columns: int) -> Value:
    """Time slots of a result line, one bit per mesh column: whether its results may leave in this cycle."""
    phase = Signal(range(max(2, period)))
    m.d.sync += phase.eq(Mux(run & (phase != period - 1), phase + 1, 0))
    return Cat(*(run & (phase == column) for column in range(columns)))
