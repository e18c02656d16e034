"""The packet-switched mesh of `acf.sim.mesh` between controllers and clusters, with its queues and its back-pressure.

The mesh has one column and one row of routers more than the fabric has clusters: column 0 has the endpoints of the row
controllers, row 0 those of the column controllers. A packet is multicast by the tree of its destinations. Results go
back to the controller of the row; partial sums, which no router can add, to that of the column, one by one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled_in_place, inlined
from acf.sim.fabric.components.cluster import Arrivals
from acf.sim.fabric.components.credit import NEVER
from acf.sim.fabric.components.line import Lines
from acf.sim.fabric.traffic import MESH, Int64s, Timing, Traffic
from acf.sim.mesh.kernel import inject, step
from acf.sim.mesh.routing import MulticastGroup, RoutingTable
from acf.sim.mesh.spec import ENDPOINT_CYCLES, ROUTER_CYCLES, MeshSpec
from acf.sim.mesh.state import MeshRules, MeshState, Routing, empty_state, rules_of

NO_PACKET = -1


class PacketNetwork(NamedTuple):
    """A mesh and what its endpoints have to send. Routes are those of packets, then those of each cluster's results.

    ``line_endpoint [lines]``, ``cluster_endpoint [clusters]``; by line the packet it injects (``sending``) and how many
    of its flits are in (``injected``); by copy the flits that arrived (``got``), its number among the tiles of its
    cluster (``number``), and when it arrives without contention (``soonest``); by cluster the flits of results that
    wait to be injected (``waiting``). ``last_result [1]``: when the latest result was at the edge.
    """

    state: MeshState
    rules: MeshRules
    routing: Routing
    line_endpoint: Int64s
    cluster_endpoint: Int64s
    sending: Int64s
    injected: Int64s
    got: Int64s
    number: Int64s
    soonest: Int64s
    waiting: Int64s
    last_result: Int64s

    @classmethod
    def new(cls, traffic: Traffic, timing: Timing, link_bytes: int) -> "PacketNetwork":
        """An idle mesh with the routes of all packets."""
        rows, columns = timing.mesh_rows, timing.mesh_columns
        spec = MeshSpec(columns=columns + 1, rows=rows + 1, flit_bytes=link_bytes)
        cluster = np.arange(rows * columns)
        cluster_endpoint = (cluster // columns + 1) * (columns + 1) + cluster % columns + 1
        line_endpoint = np.concatenate((np.arange(1, rows + 1) * (columns + 1), np.arange(1, columns + 1)))
        table, route_of = _routes(spec, traffic, line_endpoint, cluster_endpoint)
        back = line_endpoint[rows + cluster % columns] if traffic.reduces else line_endpoint[cluster // columns]
        lines, copies = line_endpoint.size, traffic.copy_cluster.size
        return cls(
            state=empty_state(spec),
            rules=rules_of(spec),
            routing=Routing.of(table, np.concatenate((route_of, back)).astype(np.int32)),
            line_endpoint=line_endpoint.astype(np.int64),
            cluster_endpoint=cluster_endpoint.astype(np.int64),
            sending=np.full(lines, NO_PACKET, dtype=np.int64),
            injected=np.zeros(lines, dtype=np.int64),
            got=np.zeros(copies, dtype=np.int64),
            number=np.zeros(copies, dtype=np.int64),
            soonest=np.zeros(copies, dtype=np.int64),
            waiting=np.zeros(cluster.size, dtype=np.int64),
            last_result=np.zeros(1, dtype=np.int64),
        )


def _routes(
    spec: MeshSpec, traffic: Traffic, line_endpoint: Int64s, cluster_endpoint: Int64s
) -> tuple[RoutingTable, NDArray[np.int32]]:
    """A multicast group for every set of destinations of a line, and the id of every packet."""
    groups: dict[tuple[int, bytes], int] = {}
    members: list[MulticastGroup] = []
    route_of = np.zeros(traffic.line.size, dtype=np.int32)
    for packet in range(traffic.line.size):
        clusters = traffic.copy_cluster[traffic.copy_first[packet] : traffic.copy_first[packet + 1]]
        key = int(traffic.line[packet]), clusters.tobytes()
        if key not in groups:
            groups[key] = len(members)
            destinations = tuple(int(cluster_endpoint[cluster]) for cluster in clusters)
            members.append(MulticastGroup(int(line_endpoint[key[0]]), destinations))
        route_of[packet] = spec.routers + groups[key]
    return RoutingTable.build(spec, members), route_of


@inlined
def start_packet(
    traffic: Traffic, network: PacketNetwork, lines: Lines, arrivals: Arrivals, packet: int, time: int, reason: int
) -> None:
    """A controller begins to inject a packet; its copies get their place in the order of their clusters."""
    line = traffic.line[packet]
    network.sending[line], network.injected[line] = packet, 0
    lines.link_free[line] = NEVER
    for copy in range(traffic.copy_first[packet], traffic.copy_first[packet + 1]):
        cluster = traffic.copy_cluster[copy]
        number = arrivals.sent[cluster]
        network.number[copy] = number
        way = ROUTER_CYCLES * (traffic.copy_distance[copy] + 2) + ENDPOINT_CYCLES
        network.soonest[copy] = time + traffic.flits[packet] - 1 + way
        arrivals.reason[cluster, number] = reason
        arrivals.sent[cluster] += 1


@compiled_in_place
def run_mesh(
    traffic: Traffic, network: PacketNetwork, lines: Lines, serial: Arrivals, parallel: Arrivals, time: int
) -> None:
    """One cycle of all routers: flits arrive at endpoints, and every endpoint injects one if the mesh has room."""
    state, routing = network.state, network.routing
    step(state, network.rules, routing, time)
    packets = traffic.line.size
    for router in range(state.delivered.size):
        flit_of = state.delivered[router]
        if flit_of >= packets:
            network.last_result[0] = time + 1
        elif flit_of >= 0:
            copy = traffic.copy_first[flit_of] + routing.place[routing.route_of[flit_of], router]
            network.got[copy] += 1
            if network.got[copy] == traffic.flits[flit_of]:
                receive(traffic, network, serial if traffic.serial[flit_of] else parallel, copy, time + 1)
    for line in range(network.sending.size):
        packet = network.sending[line]
        if packet >= 0 and inject(state, network.rules, routing, network.line_endpoint[line], packet):
            network.injected[line] += 1
            if network.injected[line] == traffic.flits[packet]:
                network.sending[line] = NO_PACKET
                lines.link_free[line] = time + 1
    for cluster in range(network.waiting.size):
        if network.waiting[cluster] > 0 and inject(
            state, network.rules, routing, network.cluster_endpoint[cluster], packets + cluster
        ):
            network.waiting[cluster] -= 1


@inlined
def receive(traffic: Traffic, network: PacketNetwork, arrivals: Arrivals, copy: int, time: int) -> None:
    """A tile is complete; clusters take tiles in the order of sending, so it may have to wait for those before it."""
    cluster, number = traffic.copy_cluster[copy], network.number[copy]
    if time > network.soonest[copy]:
        arrivals.reason[cluster, number] = MESH
    arrivals.at[cluster, number] = -time  # complete, but not yet in order
    while number < arrivals.sent[cluster] and arrivals.at[cluster, number] < 0:
        if number > 0 and (arrivals.at[cluster, number - 1] < 0 or arrivals.at[cluster, number - 1] == NEVER):
            return
        before = arrivals.at[cluster, number - 1] if number > 0 else 0
        arrivals.at[cluster, number] = max(-arrivals.at[cluster, number], before)
        number += 1


@inlined
def waiting_flits(network: PacketNetwork) -> int:
    """Flits of results that clusters hold because the mesh has not taken them yet."""
    flits = 0
    for cluster in range(network.waiting.size):
        flits += network.waiting[cluster]
    return flits
