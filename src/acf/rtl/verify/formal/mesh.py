"""Properties of the mesh: the routing table's banks, the router's flits, the planner's swaps."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.mesh.route_planner import PlannerSpec, RoutePlanner
from acf.rtl.design.mesh.router import MeshRouter, RouterSpec
from acf.rtl.design.mesh.routing_table import RoutingTable


class WritesDoNotDisturbReads(Component):
    """What a routing table answers for an id changes in no cycle but the one after a swap."""

    def __init__(self, outputs: int = 2, id_bits: int = 2) -> None:
        self.outputs, self.id_bits = outputs, id_bits
        super().__init__(
            {"id": In(id_bits), "write": In(1), "write_id": In(id_bits), "write_ports": In(outputs), "swap": In(1)}
            | {"holds": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        """Ask for the same id in two cycles; the second read asks for the id of the cycle before."""
        m = Module()
        m.submodules.table = table = RoutingTable(2, self.outputs, self.id_bits)
        asked = Signal(self.id_bits)
        answer = Signal(self.outputs)
        swapped = Signal()
        started = Signal()
        m.d.comb += [
            table.ids[0].eq(self.id),
            table.ids[1].eq(asked),
            table.write.eq(self.write),
            table.write_id.eq(self.write_id),
            table.write_ports.eq(self.write_ports),
            table.swap.eq(self.swap),
            self.holds.eq(~started | swapped | (table.ports[1] == answer)),
        ]
        m.d.sync += [asked.eq(self.id), answer.eq(table.ports[0]), swapped.eq(self.swap), started.eq(1)]
        return m


class SwapShowsWhatWasWritten(Component):
    """After a swap every id answers what was last written for it while its bank was not in use; all ids at once."""

    def __init__(self, outputs: int = 2, id_bits: int = 1) -> None:
        self.outputs, self.id_bits = outputs, id_bits
        super().__init__(
            {"write": In(1), "write_id": In(id_bits), "write_ports": In(outputs), "swap": In(1), "holds": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        """A second table of registers, exchanged whole."""
        m = Module()
        ids = 1 << self.id_bits
        m.submodules.table = table = RoutingTable(ids, self.outputs, self.id_bits)
        used = [Signal(self.outputs, name=f"used_{number}") for number in range(ids)]
        spare = [Signal(self.outputs, name=f"spare_{number}") for number in range(ids)]
        m.d.comb += [
            *(table.ids[number].eq(number) for number in range(ids)),
            table.write.eq(self.write),
            table.write_id.eq(self.write_id),
            table.write_ports.eq(self.write_ports),
            table.swap.eq(self.swap),
            self.holds.eq(Cat(*(table.ports[number] == used[number] for number in range(ids))).all()),
        ]
        for number in range(ids):
            written = Signal(self.outputs, name=f"written_{number}")
            m.d.comb += written.eq(Mux(self.write & (self.write_id == number), self.write_ports, spare[number]))
            with m.If(self.swap):
                m.d.sync += [used[number].eq(written), spare[number].eq(used[number])]
            with m.Else():
                m.d.sync += spare[number].eq(written)
        return m


class NoFlitLostOrDuplicated(Component):
    """One followed flit among any others leaves a router once by each of its outputs and by no other.

    The neighbours keep to their credits and return them when they like; every flit carries the outputs that it is for
    in its id, which is what the table answers. Nothing is lost: when the router is idle, all copies have left. With
    ``extra_credits`` the neighbours believe in room that is not there, which must break it.
    """

    def __init__(self, spec: RouterSpec | None = None, extra_credits: int = 0) -> None:
        self.extra_credits = extra_credits
        self.spec = spec = spec or RouterSpec(ports=2, virtual_channels=1, queue_flits=2, ids=4, data_bits=1)
        ports = spec.ports
        super().__init__(
            {
                "arrives": In(ports),
                "channel": In(spec.channel_bits).array(ports),
                "id": In(spec.id_bits).array(ports),
                "mark": In(ports),
                "returns": In(ports * spec.virtual_channels),
                "holds": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Neighbours with counters around a router whose table maps an id to its own bits."""
        m = Module()
        spec = self.spec
        m.submodules.router = router = MeshRouter(spec, initial_table=range(1 << spec.ports))
        followed = Signal()
        outputs = Signal(spec.ports)
        delivered = Signal(spec.ports)
        twice = Signal()
        marks = []
        for port in range(spec.ports):
            sends = self._sender(m, router, port)
            marks.append(sends & self.mark[port])
            self._receiver(m, router, port)
        first = [mark & ~followed & ~Cat(*marks[:port]).any() for port, mark in enumerate(marks)]
        for port, mark in enumerate(first):
            m.d.comb += router.inputs[port].data.eq(mark)
            with m.If(mark):
                m.d.sync += [followed.eq(1), outputs.eq(self.id[port])]
        copies = Cat(*(output.valid & output.data[0] for output in router.outputs))
        m.d.sync += [delivered.eq(delivered | copies), twice.eq(twice | (delivered & copies).any())]
        m.d.comb += self.holds.eq(
            ~twice & ((delivered & ~outputs) == 0) & ~(followed & router.idle & (delivered != outputs))
        )
        return m

    def _sender(self, m: Module, router: MeshRouter, port: int) -> Value:
        """A neighbour that sends when the environment wants and a credit is there; 1 in a cycle in which it sends."""
        spec, room = self.spec, self.spec.queue_flits + self.extra_credits
        counters = [
            Signal(range(room + 1), init=room, name=f"room_{port}_{channel}")
            for channel in range(spec.virtual_channels)
        ]
        channel = self.channel[port] if spec.virtual_channels > 1 else Const(0, 1)
        sends = Signal(name=f"sends_{port}")
        known = channel < spec.virtual_channels
        m.d.comb += [
            sends.eq(self.arrives[port] & known & self.id[port].any() & (Array(counters)[channel] != 0)),
            router.inputs[port].valid.eq(sends),
            router.inputs[port].channel.eq(channel),
            router.inputs[port].id.eq(self.id[port]),
        ]
        back = router.credits_out[port]
        for number, counter in enumerate(counters):
            gains, uses = back.valid & (back.channel == number), sends & (channel == number)
            m.d.sync += counter.eq(counter + gains - uses)
        return sends

    def _receiver(self, m: Module, router: MeshRouter, port: int) -> None:
        """A neighbour that returns a credit for what it was given, one per cycle, when the environment wants."""
        spec = self.spec
        if port == 0:
            return
        output, back = router.outputs[port], router.credits_in[port]
        given: Value = Const(0, 1)
        for channel in range(spec.virtual_channels):
            owed = Signal(range(spec.queue_flits + 1), name=f"owed_{port}_{channel}")
            gives = Signal(name=f"gives_{port}_{channel}")
            wanted = self.returns[port * spec.virtual_channels + channel]
            m.d.comb += gives.eq(wanted & (owed != 0) & ~given)
            m.d.sync += owed.eq(owed + (output.valid & (output.channel == channel)) - gives)
            with m.If(gives):
                m.d.comb += [back.valid.eq(1), back.channel.eq(channel)]
            given = given | gives


class SwapsWholeTables(Component):
    """A planner swaps between steps and in an idle mesh alone, after it has written every entry once.

    Layers, policies, starts, ends of steps and the mesh are as the environment likes.
    """

    def __init__(self) -> None:
        self.spec = spec = PlannerSpec(columns=2, rows=1, block_rows=2, depths=1, memory_words=2)
        super().__init__(
            {
                "start": In(1),
                "policy": In(1),
                "count": In(bits_for(spec.block_rows)),
                "memory_data": In(spec.depths),
                "boundary": In(1),
                "mesh_idle": In(1),
                "holds": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A bit for every entry; the layer stays the same while it is read."""
        m, spec = Module(), self.spec
        m.submodules.planner = planner = RoutePlanner(spec)
        busy, policy, count = Signal(), Signal(), Signal.like(self.count)
        known = Mux(self.count > spec.block_rows, spec.block_rows, self.count)
        m.d.comb += [
            planner.start.eq(self.start),
            planner.policy.eq(Mux(busy, policy, self.policy)),
            planner.count.eq(Mux(busy, count, known)),
            planner.memory_data.eq(self.memory_data),
            planner.boundary.eq(self.boundary),
            planner.mesh_idle.eq(self.mesh_idle),
        ]
        m.d.sync += [policy.eq(planner.policy), count.eq(planner.count), busy.eq((busy | self.start) & ~planner.swap)]
        written = Signal(spec.routers * spec.ids)
        twice = Signal()
        entry = Signal.like(written)
        m.d.comb += entry.eq(planner.table_write << (planner.table_router * spec.ids + planner.table_id))
        m.d.sync += [
            written.eq(Mux(planner.swap, 0, written | entry)),
            twice.eq(twice | (written & entry).any()),
        ]
        allowed = Cat(self.boundary, self.mesh_idle, written.all(), ~planner.table_write).all()
        m.d.comb += self.holds.eq(~twice & (~planner.swap | allowed))
        return m
