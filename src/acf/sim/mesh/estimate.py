"""Fast estimates for long flows: link loads, mean latency below saturation, and completion time beyond it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acf.errors import ArchitectureError
from acf.jit import compiled
from acf.sim.mesh.routing import RoutingTable
from acf.sim.mesh.simulate import simulate_packets
from acf.sim.mesh.spec import ENDPOINT_CYCLES, LOCAL, PORTS, ROUTER_CYCLES, MeshSpec
from acf.sim.mesh.state import Int32s, Int64s, neighbours_of, ports_of

SHORT_FLITS, LONG_FLITS = 48, 144
"""Flits of the longest flow in the two exact runs that long flows are extrapolated from."""

HIGHEST_LOAD = 0.65
"""Flits per cycle and link up to which the latency formula holds; a little more saturates the mesh."""


@dataclass(frozen=True, eq=False)
class FlowEstimate:
    """The completion time of flows that all start together.

    ``bound_cycles`` is what the busiest link, source or destination needs at one flit per cycle; ``cycles`` what the
    flows need with their contention. ``link_flits [routers, ports]`` is exact.
    """

    cycles: int
    bound_cycles: int
    link_flits: NDArray[np.int64]


def link_flits(
    spec: MeshSpec, table: RoutingTable, source: ArrayLike, route_id: ArrayLike, flits: ArrayLike
) -> NDArray[np.float64]:
    """Flits over every output, ``[routers, ports]``, for flows of ``flits`` (or flits per cycle) each."""
    sources, routes, amounts = _flows(source, route_id, flits)
    loads = np.zeros((spec.routers, PORTS))
    add_flows(ports_of(table), neighbours_of(spec), sources, routes, amounts, loads)
    return loads


def estimate_latency(
    spec: MeshSpec, table: RoutingTable, source: ArrayLike, route_id: ArrayLike, flits_per_cycle: ArrayLike
) -> NDArray[np.float64]:
    """Mean cycles of a flit of each flow to its farthest destination at given rates, below saturation.

    Every flit takes four cycles per router and two at the endpoints; at an output with load r it waits r / (2 (1 - r))
    cycles on average, as in a queue with random arrivals and equal service times.
    """
    sources, routes, rates = _flows(source, route_id, flits_per_cycle)
    loads = link_flits(spec, table, sources, routes, rates)
    if loads.max(initial=0.0) > HIGHEST_LOAD:
        raise ArchitectureError(
            f"the busiest link is asked for {loads.max():.2f} flits per cycle, above {HIGHEST_LOAD}, where the mesh "
            "saturates; use estimate_flows"
        )
    waits = loads / (2 * (1 - loads))
    ports, neighbours = ports_of(table), neighbours_of(spec)
    latencies = np.zeros(sources.size)
    for flow in range(sources.size):
        latencies[flow] = ENDPOINT_CYCLES + longest_way(ports, neighbours, waits, int(sources[flow]), int(routes[flow]))
    return latencies


def estimate_flows(
    spec: MeshSpec, table: RoutingTable, source: ArrayLike, route_id: ArrayLike, flits: ArrayLike
) -> FlowEstimate:
    """Cycles until all flows have arrived that start together, each source interleaving its own in proportion.

    Short flows are played exactly. Long ones are steady after their beginning: the exact model plays them cut down, all
    in the same proportion, to two lengths, and what the longer took more is what every further part takes.
    """
    sources, routes, amounts = _flows(source, route_id, flits)
    whole = np.rint(amounts).astype(np.int64)
    loads = np.rint(link_flits(spec, table, sources, routes, amounts)).astype(np.int64)
    injected = np.bincount(sources, weights=amounts, minlength=spec.routers)
    bound = int(max(loads.max(initial=0), injected.max(initial=0)))
    longest = int(whole.max(initial=0))
    if longest <= LONG_FLITS:
        cycles = _played(spec, table, sources, routes, whole)
    else:
        short, long = (np.ceil(amounts * size / longest).astype(np.int64) for size in (SHORT_FLITS, LONG_FLITS))
        first, second = (_played(spec, table, sources, routes, part) for part in (short, long))
        cycles = second + round((second - first) * (longest - LONG_FLITS) / (LONG_FLITS - SHORT_FLITS))
    return FlowEstimate(cycles=max(cycles, bound), bound_cycles=bound, link_flits=loads)


def interleaved(
    source: NDArray[np.int64], route_id: NDArray[np.int32], flits: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Single-flit packets of flows, in the order in which every source sends its flows in proportion."""
    flow = np.repeat(np.arange(flits.size), flits)
    first = np.repeat(np.cumsum(flits) - flits, flits)
    share = (np.arange(flow.size) - first + 0.5) / flits[flow]
    order = np.argsort(share, kind="stable")
    return source[flow[order]], route_id[flow[order]]


@compiled
def add_flows(
    ports: Int32s,
    neighbours: Int32s,
    sources: Int64s,
    routes: Int32s,
    amounts: NDArray[np.float64],
    loads: NDArray[np.float64],
) -> None:
    """Add what every flow sends over every output of its tree to ``loads [routers, ports]``."""
    routers = ports.shape[0]
    todo = np.zeros(routers, dtype=np.int64)
    for flow in range(sources.size):
        todo[0], count = sources[flow], 1
        while count > 0:
            count -= 1
            router = todo[count]
            leaves = ports[router, routes[flow]]
            for port in range(PORTS):
                if leaves >> port & 1:
                    loads[router, port] += amounts[flow]
                    if port != LOCAL:
                        todo[count] = neighbours[router, port]
                        count += 1


@compiled
def longest_way(ports: Int32s, neighbours: Int32s, waits: NDArray[np.float64], source: int, route: int) -> float:
    """Cycles to the farthest destination: routers, and queueing at their outputs."""
    routers = ports.shape[0]
    todo = np.zeros(routers, dtype=np.int64)
    spent = np.zeros(routers)
    todo[0], count = source, 1
    longest = 0.0
    while count > 0:
        count -= 1
        router = todo[count]
        so_far = spent[router]
        for port in range(PORTS):
            if ports[router, route] >> port & 1:
                after = so_far + ROUTER_CYCLES + waits[router, port]
                if port == LOCAL:
                    longest = max(longest, after)
                else:
                    todo[count] = neighbours[router, port]
                    spent[todo[count]] = after
                    count += 1
    return longest


def _played(
    spec: MeshSpec,
    table: RoutingTable,
    source: NDArray[np.int64],
    route_id: NDArray[np.int32],
    flits: NDArray[np.int64],
) -> int:
    sources, routes = interleaved(source, route_id, flits)
    return simulate_packets(spec, table, sources, routes, np.zeros(sources.size)).cycles


def _flows(
    source: ArrayLike, route_id: ArrayLike, flits: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    sources = np.ascontiguousarray(source, dtype=np.int64)
    routes = np.broadcast_to(np.asarray(route_id, dtype=np.int32), sources.shape).copy()
    amounts = np.broadcast_to(np.asarray(flits, dtype=np.float64), sources.shape).copy()
    return sources, routes, amounts
