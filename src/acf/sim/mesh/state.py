"""The state of all routers of a mesh, and the packets they carry, as arrays that compiled loops share."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.sim.mesh.routing import RoutingTable
from acf.sim.mesh.spec import LOCAL, PORTS, MeshSpec

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

UNLIMITED = 1 << 30
"""Credits of the local output: an endpoint takes a flit in every cycle."""

LINK_SLOTS = 4
"""Slots of the ring in which flits travel from crossbar to queue: more than the two cycles they take."""


class MeshRules(NamedTuple):
    """Sizes and delays that a step needs."""

    routers: int
    virtual_channels: int
    queue_flits: int
    credit_cycles: int


class MeshState(NamedTuple):
    """Everything that changes. A queue is numbered ``input port * virtual channels + virtual channel``.

    A flit is the number of its packet in the caller's arrays: flits of a packet are alike.
    """

    queue: Int32s  # [router, queue, flits], a ring
    first: Int32s  # [router, queue]
    filled: Int32s  # [router, queue]: flits in it
    wanted: Int32s  # [router, queue]: outputs for which the head flit has no virtual channel yet, as bits
    held: Int32s  # [router, queue]: outputs for which it has one and has not yet left, as bits
    holding: Int32s  # [router, queue, port]: that virtual channel
    taken: Int32s  # [router, port, virtual channel]: 1 while it is allocated
    credits: Int32s  # [router, port, virtual channel]
    queue_turn: Int32s  # [router, port, virtual channel]: input queue that it grants first
    channel_turn: Int32s  # [router, queue]: virtual channel that it accepts first
    send_turn: Int32s  # [router, port]: virtual channel that an input offers first
    grant_turn: Int32s  # [router, port]: input that an output grants first
    accept_turn: Int32s  # [router, port]: output that an input accepts first
    link_packet: Int32s  # [LINK_SLOTS, router, port]: packet of the flit in flight behind that output, -1: none
    link_channel: Int32s  # [LINK_SLOTS, router, port]: into which virtual channel
    credit_wire: Int32s  # [slots, router, port]: virtual channel of a credit for that output, -1 for nothing
    inject_credits: Int32s  # [router, virtual channel]
    inject_wire: Int32s  # [slots, router]: virtual channel of a credit for the endpoint, -1 for nothing
    inject_turn: Int32s  # [router]: virtual channel that the endpoint tries first
    stored: Int32s  # [router]: flits in its queues
    delivered: Int32s  # [router]: packet of the flit its endpoint was given in the last step, -1 for none
    flits_sent: Int64s  # [router, port]: flits that left by each output
    in_flight: Int64s  # [1]: flits in queues and on links
    # Scratch of one router and cycle, so that no step allocates:
    wants: Int32s  # [port]: queues whose head flit needs a virtual channel there, as bits
    sends: Int32s  # [port]: queues whose head flit has one, with a credit, as bits
    winners: Int32s  # [port, virtual channel]: queue that it is allocated to, -1: none
    granted: Int32s  # [port]: queue that an output grants, -1 for none
    offers: Int32s  # [port]: outputs that grant a queue of this input, as bits


class Routing(NamedTuple):
    """Where packets go: constant while they are played."""

    ports: Int32s  # [routers, ids]: the routing table, output ports as bits
    neighbours: Int32s  # [routers, ports]: the router behind each port
    place: Int32s  # [ids, routers]: position of an endpoint among the destinations of an id
    route_of: Int32s  # [packets]: the id of every packet

    @classmethod
    def of(cls, table: RoutingTable, route_of: Int32s) -> "Routing":
        """The routes of packets with these ids."""
        return cls(ports_of(table), neighbours_of(table.spec), table.place, route_of)


class Packets(NamedTuple):
    """Packets that wait in their endpoints, router by router and by time."""

    order: Int64s  # [packets]: their numbers, by router and then by time
    first_of_router: Int64s  # [routers + 1]: where each router's begin in ``order``
    inject_cycle: Int64s  # [packets]: when each is made
    flits: Int64s  # [packets]
    cursor: Int64s  # [routers]: place in ``order`` of the packet that is sent next or now
    flits_sent: Int64s  # [routers]: flits of that packet which were injected

    @classmethod
    def of(cls, source: Int64s, inject_cycle: Int64s, flits: Int64s, routers: int) -> "Packets":
        """Packets of which nothing has been sent."""
        order = np.lexsort((inject_cycle, source)).astype(np.int64)
        first_of_router = np.searchsorted(source[order], np.arange(routers + 1)).astype(np.int64)
        return cls(
            order, first_of_router, inject_cycle, flits, first_of_router[:-1].copy(), np.zeros(routers, dtype=np.int64)
        )


class Deliveries(NamedTuple):
    """What became of packets. Those to the destinations of packet p lie from ``first[p]`` to ``first[p + 1]``."""

    entry_cycle: Int64s  # [packets]: the first flit enters the queue of its router
    first: Int64s  # [packets + 1]
    cycle: Int64s  # [deliveries]: the last flit is at the destination
    flits: Int64s  # [deliveries]: flits that arrived there

    @classmethod
    def of(cls, table: RoutingTable, route_of: Int32s) -> "Deliveries":
        """Nothing delivered yet."""
        fan_out = np.array([len(table.destinations(name)) for name in range(table.ports.shape[1])], dtype=np.int64)
        first = np.concatenate([[0], np.cumsum(fan_out[route_of])]).astype(np.int64)
        cycle, flits = np.zeros((2, int(first[-1])), dtype=np.int64)
        return cls(np.zeros(route_of.size, dtype=np.int64), first, cycle, flits)


def rules_of(spec: MeshSpec) -> MeshRules:
    """The numbers of a Spec as the compiled step takes them."""
    return MeshRules(
        routers=spec.routers,
        virtual_channels=spec.virtual_channels,
        queue_flits=spec.queue_flits,
        credit_cycles=spec.credit_delay_cycles + 2,
    )


def neighbours_of(spec: MeshSpec) -> Int32s:
    """``[router, port]``: the router behind each port, -1 at an edge and behind the local port."""
    table = [[spec.neighbour(router, port) for port in range(PORTS)] for router in range(spec.routers)]
    return np.array(table, dtype=np.int32)


def empty_state(spec: MeshSpec) -> MeshState:
    """All queues empty, all credits at home."""
    routers, channels = spec.routers, spec.virtual_channels
    queues = PORTS * channels
    slots = spec.credit_delay_cycles + 3

    def zeros(*shape: int) -> Int32s:
        return np.zeros((routers, *shape), dtype=np.int32)

    def nothing(*shape: int) -> Int32s:
        return np.full(shape, -1, dtype=np.int32)

    credits = np.full((routers, PORTS, channels), spec.queue_flits, dtype=np.int32)
    credits[:, LOCAL] = UNLIMITED
    return MeshState(
        queue=zeros(queues, spec.queue_flits),
        first=zeros(queues),
        filled=zeros(queues),
        wanted=zeros(queues),
        held=zeros(queues),
        holding=nothing(routers, queues, PORTS),
        taken=zeros(PORTS, channels),
        credits=credits,
        queue_turn=zeros(PORTS, channels),
        channel_turn=zeros(queues),
        send_turn=zeros(PORTS),
        grant_turn=zeros(PORTS),
        accept_turn=zeros(PORTS),
        link_packet=nothing(LINK_SLOTS, routers, PORTS),
        link_channel=nothing(LINK_SLOTS, routers, PORTS),
        credit_wire=nothing(slots, routers, PORTS),
        inject_credits=np.full((routers, channels), spec.queue_flits, dtype=np.int32),
        inject_wire=nothing(slots, routers),
        inject_turn=zeros(),
        stored=zeros(),
        delivered=nothing(routers),
        flits_sent=np.zeros((routers, PORTS), dtype=np.int64),
        in_flight=np.zeros(1, dtype=np.int64),
        wants=nothing(PORTS),
        sends=nothing(PORTS),
        winners=nothing(PORTS, channels),
        granted=nothing(PORTS),
        offers=nothing(PORTS),
    )


def ports_of(table: RoutingTable) -> Int32s:
    """The routing table as the compiled step takes it: int32 ``[routers, ids]``."""
    return table.ports.astype(np.int32)
