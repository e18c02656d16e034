"""What is proved of the controller that makes routing tables."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.units.route_planner import PlannerSpec, RoutePlanner


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
