"""Packets played on a mesh cycle by cycle: when each arrives, and what every link carried."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acf.errors import ArchitectureError
from acf.sim.mesh.kernel import run_packets
from acf.sim.mesh.routing import RoutingTable
from acf.sim.mesh.spec import LOCAL, MeshSpec
from acf.sim.mesh.state import Deliveries, Packets, Routing, empty_state, rules_of

LIMIT_CYCLES = 1 << 40


@dataclass(frozen=True, eq=False)
class MeshRun:
    """What became of the packets; one entry per packet, in the order given, cycles of the mesh clock.

    ``delivery_cycle`` and ``delivered_flits`` have an entry for every destination of every packet: those of packet p,
    in the order of its destinations, lie from ``first_delivery[p]`` to ``first_delivery[p + 1]``.
    """

    spec: MeshSpec
    entry_cycle: NDArray[np.int64]  # the first flit enters the queue of its router
    arrival_cycle: NDArray[np.int64]  # the last flit is at the last destination
    first_delivery: NDArray[np.int64]
    delivery_cycle: NDArray[np.int64]
    delivered_flits: NDArray[np.int64]
    link_flits: NDArray[np.int64]  # [router, port]: flits that left by that output
    cycles: int

    @property
    def flit_hops(self) -> int:
        """Flits over links between routers."""
        return int(self.link_flits.sum() - self.link_flits[:, LOCAL].sum())


def simulate_packets(
    spec: MeshSpec,
    table: RoutingTable,
    source: ArrayLike,
    route_id: ArrayLike,
    inject_cycle: ArrayLike,
    flits: ArrayLike = 1,
    limit_cycles: int = LIMIT_CYCLES,
) -> MeshRun:
    """Play packets, cycle by cycle, on an idle mesh.

    ``source`` is an endpoint, ``route_id`` an endpoint or `RoutingTable.id_of_group` of a group of that source,
    ``inject_cycle`` when the packet is made, ``flits`` its length (one for all, or one for each). Packets of a source
    leave in order, one flit per cycle, and wait in the endpoint, without limit, while the mesh has no room.
    """
    made = np.ascontiguousarray(inject_cycle, dtype=np.int64)
    count = made.size
    sources = np.broadcast_to(np.asarray(source, dtype=np.int64), (count,)).copy()
    routes = np.broadcast_to(np.asarray(route_id, dtype=np.int32), (count,)).copy()
    lengths = np.broadcast_to(np.asarray(flits, dtype=np.int64), (count,)).copy()
    _check(spec, table, sources, routes, made, lengths)
    routing, deliveries = Routing.of(table, routes), Deliveries.of(table, routes)
    packets = Packets.of(sources, made, lengths, spec.routers)
    state = empty_state(spec)
    cycles = run_packets(state, rules_of(spec), routing, packets, deliveries, limit_cycles)
    if cycles < 0:
        raise ArchitectureError(
            f"packets are still in flight after {limit_cycles} cycles; send fewer or raise limit_cycles"
        )
    arrival = np.maximum.reduceat(deliveries.cycle, deliveries.first[:-1]) if count else np.zeros(0, dtype=np.int64)
    return MeshRun(
        spec=spec,
        entry_cycle=deliveries.entry_cycle,
        arrival_cycle=arrival,
        first_delivery=deliveries.first,
        delivery_cycle=deliveries.cycle,
        delivered_flits=deliveries.flits,
        link_flits=state.flits_sent,
        cycles=int(cycles),
    )


def _check(
    spec: MeshSpec,
    table: RoutingTable,
    sources: NDArray[np.int64],
    routes: NDArray[np.int32],
    made: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    if table.spec.columns != spec.columns or table.spec.rows != spec.rows:
        raise ArchitectureError(
            f"the routing table is for {table.spec.columns} x {table.spec.rows} routers, "
            f"the mesh has {spec.columns} x {spec.rows}; build the table for this mesh"
        )
    if not made.size:
        return
    for name, values, limit in (("source", sources, spec.routers), ("route_id", routes, table.ports.shape[1])):
        low, high = int(np.min(values)), int(np.max(values))
        if low < 0 or high >= limit:
            raise ArchitectureError(f"{name} must lie in 0 to {limit - 1}; got {low} to {high}")
    if int(made.min()) < 0 or int(lengths.min()) < 1:
        raise ArchitectureError(
            f"inject cycle {int(made.min())} or length {int(lengths.min())} flits is too small; "
            "time begins at 0 and a packet has at least one flit"
        )
    origins = np.array([group.source for group in table.groups], dtype=np.int64)
    multicast = routes >= spec.routers
    if not np.array_equal(origins[routes[multicast] - spec.routers], sources[multicast]):
        raise ArchitectureError(
            "a packet for a group comes from another endpoint than the group's source; use a group of it"
        )
