"""A mesh of routers with an injector at every endpoint; ports and numbers are those of `acf.sim.mesh`."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib.wiring import Component, In, Out, connect

from acf.rtl.design.mesh.router import MeshRouter, RouterSpec
from acf.rtl.design.primitives.round_robin import after, first_from, index_of

LOCAL, EAST, WEST, NORTH, SOUTH = range(5)
OPPOSITE = (LOCAL, WEST, EAST, SOUTH, NORTH)


class Injector(Component):
    """Injects an endpoint's flits into the local queues of its router, round-robin, at most one per cycle.

    The endpoint holds ``valid``, ``id`` and ``data`` until ``ready``. A credit counts in the cycle in which it arrives.
    """

    def __init__(self, spec: RouterSpec | None = None) -> None:
        self.spec = spec = spec or RouterSpec()
        super().__init__(
            {
                "valid": In(1),
                "id": In(spec.id_bits),
                "data": In(spec.data_bits),
                "ready": Out(1),
                "link": Out(spec.link()),
                "credit": In(spec.credit()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A counter per virtual channel and a pointer."""
        m = Module()
        spec = self.spec
        turn = Signal(range(max(2, spec.virtual_channels)))
        rooms = []
        for channel in range(spec.virtual_channels):
            left = Signal(range(spec.queue_flits + 1), init=spec.queue_flits, name=f"credits_{channel}")
            room = Signal(range(spec.queue_flits + 2), name=f"room_{channel}")
            uses = self.link.valid & (self.link.channel == channel)
            m.d.comb += room.eq(left + (self.credit.valid & (self.credit.channel == channel)))
            m.d.sync += left.eq(room - uses)
            rooms.append(room)
        chosen = first_from(m, Cat(*(room.any() for room in rooms)), turn, "chosen")
        m.d.comb += [
            self.ready.eq(chosen.any()),
            self.link.valid.eq(self.valid & self.ready),
            self.link.channel.eq(index_of(chosen)),
            self.link.id.eq(self.id),
            self.link.data.eq(self.data),
        ]
        with m.If(self.link.valid):
            m.d.sync += turn.eq(after(chosen))
        return m


@dataclass(frozen=True)
class MeshNetworkSpec:
    """``columns`` x ``rows`` routers, numbered row by row; east is one column on, north one row on."""

    columns: int = 2
    rows: int = 2
    router: RouterSpec = RouterSpec()  # noqa: RUF009 - frozen

    @property
    def routers(self) -> int:
        """Routers, and endpoints."""
        return self.columns * self.rows

    def neighbour(self, router: int, port: int) -> int | None:
        """The router behind a port; None at the edge."""
        column, row = router % self.columns, router // self.columns
        across, along = {EAST: (1, 0), WEST: (-1, 0), NORTH: (0, 1), SOUTH: (0, -1)}[port]
        if 0 <= column + across < self.columns and 0 <= row + along < self.rows:
            return router + across + along * self.columns
        return None


class MeshNetwork(Component):
    """Routers and injectors; every endpoint has ``send`` (valid, id, data, ready) and ``receive`` (a link).

    ``table_router`` says whose table ``table_write`` goes to; ``swap`` goes to all of them.
    """

    def __init__(self, spec: MeshNetworkSpec | None = None) -> None:
        self.spec = spec = spec or MeshNetworkSpec()
        router = spec.router
        super().__init__(
            {
                "send_valid": In(spec.routers),
                "send_id": In(router.id_bits).array(spec.routers),
                "send_data": In(router.data_bits).array(spec.routers),
                "send_ready": Out(spec.routers),
                "receive": Out(router.link()).array(spec.routers),
                "table_write": In(1),
                "table_router": In(range(max(2, spec.routers))),
                "table_id": In(router.id_bits),
                "table_ports": In(router.ports),
                "swap": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Instances and wires."""
        m = Module()
        spec = self.spec
        routers = [MeshRouter(spec.router) for _ in range(spec.routers)]
        for number, router in enumerate(routers):
            m.submodules[f"router_{number}"] = router
            m.submodules[f"injector_{number}"] = injector = Injector(spec.router)
            connect(m, injector.link, router.inputs[LOCAL])
            connect(m, router.credits_out[LOCAL], injector.credit)
            m.d.comb += [
                injector.valid.eq(self.send_valid[number]),
                injector.id.eq(self.send_id[number]),
                injector.data.eq(self.send_data[number]),
                self.send_ready[number].eq(injector.ready),
                router.table_write.eq(self.table_write & (self.table_router == number)),
                router.table_id.eq(self.table_id),
                router.table_ports.eq(self.table_ports),
                router.swap.eq(self.swap),
            ]
            source, sink = router.outputs[LOCAL], self.receive[number]
            m.d.comb += [getattr(sink, name).eq(getattr(source, name)) for name in ("valid", "channel", "id", "data")]
            for port in (EAST, WEST, NORTH, SOUTH):
                behind = spec.neighbour(number, port)
                if behind is not None:
                    connect(m, router.outputs[port], routers[behind].inputs[OPPOSITE[port]])
                    connect(m, routers[behind].credits_out[OPPOSITE[port]], router.credits_in[port])
        m.d.comb += self.idle.eq(Cat(*(router.idle for router in routers)).all())
        return m
