"""A mesh with its route planner: new routing tables are swapped in between two training steps."""

from dataclasses import replace

from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.mesh.network import MeshNetwork, MeshNetworkSpec
from acf.rtl.design.mesh.route_planner import PlannerSpec, RoutePlanner
from acf.rtl.design.mesh.router import RouterSpec
from acf.rtl.design.primitives.wires import forward


class PlannedMesh(Component):
    """`MeshNetwork` and `RoutePlanner`: endpoints send and receive, the planner is started, steps end (``boundary``).

    Ports are those of the two; tables and swaps are between them alone.
    """

    def __init__(self, spec: PlannerSpec | None = None, router: RouterSpec | None = None) -> None:
        self.spec = spec = spec or PlannerSpec()
        router = replace(router or RouterSpec(), ids=spec.ids)
        self._planner, self._mesh = RoutePlanner(spec), MeshNetwork(MeshNetworkSpec(spec.columns, spec.rows, router))
        outer: dict[str, In | Out] = {}
        for part in (self._planner, self._mesh):
            outer |= {name: member for name, member in part.signature.members.items() if name not in _INNER}
        super().__init__({**outer, "swap": Out(1), "mesh_idle": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Connect by name."""
        m = Module()
        m.submodules.planner, m.submodules.mesh = planner, mesh = self._planner, self._mesh
        m.d.comb += [
            mesh.table_write.eq(planner.table_write),
            mesh.table_router.eq(planner.table_router),
            mesh.table_id.eq(planner.table_id),
            mesh.table_ports.eq(planner.table_ports),
            mesh.swap.eq(planner.swap),
            planner.mesh_idle.eq(mesh.idle),
            self.mesh_idle.eq(mesh.idle),
            self.swap.eq(planner.swap),
        ]
        for part in (planner, mesh):
            forward(m, self, part, [name for name in part.signature.members if name not in _INNER])
        return m


_INNER = ("table_write", "table_router", "table_id", "table_ports", "swap", "mesh_idle", "idle")
