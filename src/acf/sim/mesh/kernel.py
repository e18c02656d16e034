"""One cycle of a mesh, compiled, in the order of `docs/mesh.md`."""

from acf.jit import compiled_in_place, inlined, int64
from acf.sim.mesh.spec import LOCAL, OPPOSITE, PORTS
from acf.sim.mesh.state import LINK_SLOTS, Deliveries, Int32s, MeshRules, MeshState, Packets, Routing

LINK_CYCLES = 2  # from winning the crossbar to the downstream queue: crossbar and link


@compiled_in_place
def inject(state: MeshState, rules: MeshRules, routing: Routing, router: int, packet: int) -> bool:
    """Inject a flit of a packet into the local input of a router, at the end of a cycle, at most once per cycle.

    The virtual channel is the next in turn that has a credit; False where none has.
    """
    channel = state.inject_turn[router]
    for _ in range(rules.virtual_channels):
        if state.inject_credits[router, channel] > 0:
            state.inject_credits[router, channel] -= 1
            enqueue(state, rules, routing, router, LOCAL * rules.virtual_channels + channel, packet)
            state.inject_turn[router] = (channel + 1) % rules.virtual_channels
            state.in_flight[0] += 1
            return True
        channel = (channel + 1) % rules.virtual_channels
    return False


@inlined
def enqueue(state: MeshState, rules: MeshRules, routing: Routing, router: int, queue: int, packet: int) -> None:
    """Write a flit into a queue; at its head, look up its outputs."""
    count = state.filled[router, queue]
    place = (state.first[router, queue] + count) % rules.queue_flits
    state.queue[router, queue, place] = packet
    state.filled[router, queue] = count + 1
    state.stored[router] += 1
    if count == 0:
        state.wanted[router, queue] = routing.ports[router, routing.route_of[packet]]


@compiled_in_place
def step(state: MeshState, rules: MeshRules, routing: Routing, cycle: int) -> None:
    """Let one cycle pass: credits and flits arrive at its end, so routers see what was there before."""
    for router in range(rules.routers):
        if state.stored[router] > 0:
            allocate(state, rules, routing, router, cycle)
    receive_credits(state, rules, cycle)
    receive_flits(state, rules, routing, cycle)


@inlined
def receive_credits(state: MeshState, rules: MeshRules, cycle: int) -> None:
    """Count the credits that arrive."""
    slot = (cycle + 1) % state.credit_wire.shape[0]
    for router in range(rules.routers):
        channel = state.inject_wire[slot, router]
        if channel >= 0:
            state.inject_credits[router, channel] += 1
            state.inject_wire[slot, router] = -1
        for port in range(1, PORTS):
            channel = state.credit_wire[slot, router, port]
            if channel >= 0:
                state.credits[router, port, channel] += 1
                state.credit_wire[slot, router, port] = -1


@inlined
def receive_flits(state: MeshState, rules: MeshRules, routing: Routing, cycle: int) -> None:
    """Take flits off the links: into the queue of the next router, or to the endpoint."""
    slot = cycle % LINK_SLOTS
    for router in range(rules.routers):
        state.delivered[router] = state.link_packet[slot, router, LOCAL]
        if state.delivered[router] >= 0:
            state.link_packet[slot, router, LOCAL] = -1
            state.in_flight[0] -= 1
        for port in range(1, PORTS):
            packet = state.link_packet[slot, router, port]
            if packet >= 0:
                queue = OPPOSITE[port] * rules.virtual_channels + state.link_channel[slot, router, port]
                enqueue(state, rules, routing, routing.neighbours[router, port], queue, packet)
                state.link_packet[slot, router, port] = -1


@compiled_in_place
def first_from(bits: int, turn: int, size: int) -> int:
    """The first set bit at or after ``turn`` in a ring of ``size`` bits; ``bits`` is not 0."""
    for offset in range(size):
        place = turn + offset
        if place >= size:
            place -= size
        if bits >> place & 1:
            return place
    return -1


@inlined
def allocate(state: MeshState, rules: MeshRules, routing: Routing, router: int, cycle: int) -> None:
    """Virtual-channel and switch allocation of one router, on the state at the beginning of the cycle."""
    channels = rules.virtual_channels
    wants, sends, winners = state.wants, state.sends, state.winners
    for port in range(PORTS):
        wants[port] = sends[port] = 0
    any_sends = False
    for queue in range(PORTS * channels):
        if state.filled[router, queue] == 0:
            continue
        wanted, held = state.wanted[router, queue], state.held[router, queue]
        for port in range(PORTS):
            if wanted >> port & 1:
                wants[port] |= 1 << queue
            elif held >> port & 1 and state.credits[router, port, state.holding[router, queue, port]] > 0:
                sends[port] |= 1 << queue
                any_sends = True
    for port in range(PORTS):
        if wants[port]:
            choose_queues(state, rules, router, port, wants[port], winners)
    if any_sends:
        grant_and_send(state, rules, routing, router, sends, cycle)
    for port in range(PORTS):
        if wants[port]:
            for channel in range(channels):
                queue = winners[port, channel]
                if queue >= 0:
                    state.taken[router, port, channel] = 1
                    state.holding[router, queue, port] = channel
                    state.wanted[router, queue] &= ~(1 << port)
                    state.held[router, queue] |= 1 << port


@inlined
def choose_queues(state: MeshState, rules: MeshRules, router: int, port: int, wants: int, winners: Int32s) -> None:
    """Virtual-channel allocation: each free one grants an input queue; a queue with two grants accepts one."""
    queues, channels = PORTS * rules.virtual_channels, rules.virtual_channels
    for channel in range(channels):
        winners[port, channel] = -1
        if not state.taken[router, port, channel]:
            winners[port, channel] = first_from(wants, state.queue_turn[router, port, channel], queues)
    for channel in range(channels):
        queue = winners[port, channel]
        if queue < 0:
            continue
        offered = 0
        for other in range(channels):
            if winners[port, other] == queue:
                offered |= 1 << other
        accepted = first_from(offered, state.channel_turn[router, queue], channels)
        for other in range(channels):
            if winners[port, other] == queue and other != accepted:
                winners[port, other] = -1
        if winners[port, accepted] == queue and accepted >= channel:
            state.queue_turn[router, port, accepted] = (queue + 1) % queues
            state.channel_turn[router, queue] = (accepted + 1) % channels


@inlined
def grant_and_send(
    state: MeshState,
    rules: MeshRules,
    routing: Routing,
    router: int,
    sends: Int32s,
    cycle: int,
) -> None:
    """Switch allocation: every output grants one queue; every input accepts one queue, at all outputs that grant it."""
    channels = rules.virtual_channels
    granted, offers = state.granted, state.offers
    for port in range(PORTS):
        granted[port], offers[port] = -1, 0
    for port in range(PORTS):
        if sends[port]:
            inputs = 0
            for source in range(PORTS):
                if sends[port] >> source * channels & (1 << channels) - 1:
                    inputs |= 1 << source
            source = first_from(inputs, state.grant_turn[router, port], PORTS)
            of_input = sends[port] >> source * channels & (1 << channels) - 1
            channel = first_from(of_input, state.send_turn[router, source], channels)
            granted[port] = source * channels + channel
            offers[source] |= 1 << port
    for source in range(PORTS):
        if offers[source] == 0:
            continue
        first = first_from(offers[source], state.accept_turn[router, source], PORTS)
        state.accept_turn[router, source] = (first + 1) % PORTS
        queue = granted[first]
        state.send_turn[router, source] = (queue + 1) % channels
        for port in range(PORTS):
            if granted[port] == queue:
                state.grant_turn[router, port] = (source + 1) % PORTS
                send(state, router, queue, port, cycle)
        if state.wanted[router, queue] == 0 and state.held[router, queue] == 0:
            dequeue(state, rules, routing, router, queue, cycle)


@inlined
def send(state: MeshState, router: int, queue: int, port: int, cycle: int) -> None:
    """Pass the head flit of a queue through the crossbar to one output, and free its virtual channel."""
    channel = state.holding[router, queue, port]
    packet = state.queue[router, queue, state.first[router, queue]]
    slot = (cycle + LINK_CYCLES) % LINK_SLOTS
    state.link_packet[slot, router, port] = packet
    state.link_channel[slot, router, port] = channel
    state.held[router, queue] &= ~(1 << port)
    state.holding[router, queue, port] = -1
    state.taken[router, port, channel] = 0
    state.flits_sent[router, port] += 1
    state.in_flight[0] += 1
    if port != LOCAL:
        state.credits[router, port, channel] -= 1


@inlined
def dequeue(
    state: MeshState,
    rules: MeshRules,
    routing: Routing,
    router: int,
    queue: int,
    cycle: int,
) -> None:
    """Remove the head flit, all of whose copies have left, and return its credit."""
    source, channel = queue // rules.virtual_channels, queue % rules.virtual_channels
    first = (state.first[router, queue] + 1) % rules.queue_flits
    state.first[router, queue] = first
    state.filled[router, queue] -= 1
    state.stored[router] -= 1
    state.in_flight[0] -= 1
    if state.filled[router, queue] > 0:
        state.wanted[router, queue] = routing.ports[router, routing.route_of[state.queue[router, queue, first]]]
    slot = (cycle + rules.credit_cycles) % state.credit_wire.shape[0]
    if source == LOCAL:
        state.inject_wire[slot, router] = channel
    else:
        state.credit_wire[slot, routing.neighbours[router, source], OPPOSITE[source]] = channel


@compiled_in_place
def run_packets(
    state: MeshState, rules: MeshRules, routing: Routing, packets: Packets, deliveries: Deliveries, limit_cycles: int
) -> int:
    """Play packets to their end; returns the cycles this took, or -1 if ``limit_cycles`` did not suffice.

    Cycles in which the mesh is empty and all credits are home are skipped.
    """
    left = 0
    for packet in range(packets.flits.size):
        left += packets.flits[packet] * (deliveries.first[packet + 1] - deliveries.first[packet])
    cycle, quiet = int64(0), 0
    while left > 0:
        if cycle >= limit_cycles:
            return -1
        step(state, rules, routing, cycle)
        left -= record_deliveries(state, routing, deliveries, cycle)
        soonest = inject_waiting(state, rules, routing, packets, deliveries, cycle)
        cycle += 1
        quiet = quiet + 1 if state.in_flight[0] == 0 else 0
        if quiet > rules.credit_cycles + 1 and soonest > cycle:
            cycle = soonest
    return cycle


@inlined
def record_deliveries(state: MeshState, routing: Routing, deliveries: Deliveries, cycle: int) -> int:
    """Note the flits that endpoints were given in this cycle; returns how many."""
    count = 0
    for router in range(state.delivered.size):
        packet = state.delivered[router]
        if packet >= 0:
            index = deliveries.first[packet] + routing.place[routing.route_of[packet], router]
            deliveries.cycle[index] = cycle + 1
            deliveries.flits[index] += 1
            count += 1
    return count


@inlined
def inject_waiting(
    state: MeshState, rules: MeshRules, routing: Routing, packets: Packets, deliveries: Deliveries, cycle: int
) -> int:
    """Every endpoint injects the next flit of its oldest packet, if there is a credit.

    Returns the cycle of the next injection: this one if any endpoint has a packet ready, -1 if none is left. A flit
    made in a cycle enters its router in the next at the earliest.
    """
    soonest = -1
    for router in range(rules.routers):
        index = packets.cursor[router]
        if index == packets.first_of_router[router + 1]:
            continue
        packet = packets.order[index]
        if packets.inject_cycle[packet] >= cycle:
            if soonest < 0 or packets.inject_cycle[packet] + 1 < soonest:
                soonest = packets.inject_cycle[packet] + 1
            continue
        soonest = cycle
        if inject(state, rules, routing, router, packet):
            if packets.flits_sent[router] == 0:
                deliveries.entry_cycle[packet] = cycle
            packets.flits_sent[router] += 1
            if packets.flits_sent[router] == packets.flits[packet]:
                packets.flits_sent[router] = 0
                packets.cursor[router] = index + 1
    return soonest
