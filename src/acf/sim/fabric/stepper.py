"""The fabric cycle by cycle: credits, queues, units and drains change state once in every cycle, as in hardware.

Nothing here looks ahead: a controller knows its credits, a cluster what has arrived, a unit when it is done. Links are
pipelines of fixed length, so a flit or a credit on its way is a time of arrival.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
from acf.sim.fabric.plan import Plan, plan_items
from acf.sim.fabric.traffic import (
    DRAIN,
    FILL,
    IMBALANCE,
    MEMORY,
    MESH,
    SCAN,
    WORK,
    Timing,
    Traffic,
    arrival_of,
    cluster_at,
    places_of,
    takes,
)

Int64s = NDArray[np.int64]
NEVER = 1 << 62


class EventLog(NamedTuple):
    """When things happened, in cycles; -1: not at all. An empty log (no packets) records nothing.

    ``sent_at [packets]``; ``begun_at [row packets, mesh_columns, units]``; by round and cluster ``first_left``,
    ``last_left`` (the first and last flit of results; of partial sums when they begin to move) and ``emptied_at``.
    """

    sent_at: Int64s
    begun_at: Int64s
    first_left: Int64s
    last_left: Int64s
    emptied_at: Int64s

    @classmethod
    def of_size(
        cls, row_packets: int, column_packets: int, columns: int, units: int, rounds: int, clusters: int
    ) -> "EventLog":
        """A log in which nothing has happened yet."""
        return cls(
            np.full(row_packets + column_packets, -1, dtype=np.int64),
            np.full((row_packets, columns, units), -1, dtype=np.int64),
            *(np.full((rounds, clusters), -1, dtype=np.int64) for _ in range(3)),
        )


class Controllers(NamedTuple):
    """State of the controllers, by line: packets sent (``head``) and asked for, memory's answers, when links are free.

    ``ready_at``, ``ready_reason``: ``[lines, prefetch]``.
    """

    head: Int64s
    asked: Int64s
    ready_at: Int64s
    ready_reason: Int64s
    dram_free: Int64s
    link_free: Int64s


class Credits(NamedTuple):
    """Credits of a controller for one store of every cluster: those ``left``, and those on their way back.

    ``back_at [clusters, places]``: times of return, in order; ``returned``, ``used``: how many were sent, and taken.
    """

    left: Int64s
    back_at: Int64s
    returned: Int64s
    used: Int64s


class Clusters(NamedTuple):
    """State of the clusters: pieces and blocks on their way or there (``[clusters, number]``), units, banks, drains.

    ``begun [clusters, units]``: pieces a unit has begun; ``busy_until``. ``drain_left``: flits of the round that is
    leaving, -1: none is. ``emptied``: banks emptied so far.
    """

    item_at: Int64s
    item_reason: Int64s
    items_sent: Int64s
    block_at: Int64s
    block_reason: Int64s
    blocks_sent: Int64s
    blocks_freed: Int64s
    begun: Int64s
    busy_until: Int64s
    items_done: Int64s
    rounds_done: Int64s
    emptied: Int64s
    drain_round: Int64s
    drain_left: Int64s
    drain_until: Int64s


def step_program(traffic: Traffic, timing: Timing, unit_cycles: Int64s) -> int:
    """Cycles of a program; adds to ``unit_cycles [clusters * units, reasons]``."""
    return step_and_log(traffic, timing, unit_cycles, EventLog.of_size(0, 0, 0, 0, 0, 0))


@compiled
def step_and_log(traffic: Traffic, timing: Timing, unit_cycles: Int64s, log: EventLog) -> int:
    """As `step_program`, and writes into ``log`` when everything happened."""
    plan = plan_items(traffic)
    controllers = new_controllers(traffic, timing)
    clusters = new_clusters(traffic, plan)
    count = plan.item_count.size
    queue, slots = new_credits(count, timing.queue_packets), new_credits(count, timing.parallel_slots)
    end, latest, time = 0, 0, 0
    while True:
        latest = max(latest, end_items(traffic, timing, plan, clusters, queue, slots, time))
        end = max(end, drain_results(traffic, timing, plan, clusters, time, log))
        send_packets(traffic, timing, controllers, clusters, queue, slots, time, log)
        begin_items(traffic, plan, clusters, time, unit_cycles, log)
        if (
            (controllers.head == traffic.first[1:]).all()
            and (clusters.items_done == plan.item_count).all()
            and (clusters.drain_round == traffic.round_flits.shape[0]).all()
        ):
            break
        time += 1
    end = max(end, latest)
    units = clusters.busy_until.shape[1]
    for who in range(count * units):
        unit_cycles[who, IMBALANCE] += latest - clusters.busy_until[who // units, who % units]
        unit_cycles[who, DRAIN] += end - latest
    return int(end)


@compiled
def new_controllers(traffic: Traffic, timing: Timing) -> Controllers:
    """Controllers that have done nothing yet."""
    lines = traffic.first.size - 1
    return Controllers(
        traffic.first[:-1].copy(),
        traffic.first[:-1].copy(),
        np.full((lines, timing.prefetch_packets), NEVER, dtype=np.int64),
        np.full((lines, timing.prefetch_packets), FILL, dtype=np.int64),
        np.zeros(lines, dtype=np.int64),
        np.zeros(lines, dtype=np.int64),
    )


@compiled
def new_credits(clusters: int, places: int) -> Credits:
    """A credit for every place of every cluster."""
    return Credits(
        np.full(clusters, places, dtype=np.int64),
        np.full((clusters, places), NEVER, dtype=np.int64),
        np.zeros(clusters, dtype=np.int64),
        np.zeros(clusters, dtype=np.int64),
    )


@compiled
def new_clusters(traffic: Traffic, plan: Plan) -> Clusters:
    """Clusters to which nothing has come yet."""
    count, most_items = plan.item_of.shape
    most_blocks = max(1, plan.blocks_due.max())
    units = traffic.item_cycles.shape[1]
    return Clusters(
        np.full((count, most_items), NEVER, dtype=np.int64),
        np.zeros((count, most_items), dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.full((count, most_blocks), NEVER, dtype=np.int64),
        np.zeros((count, most_blocks), dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.zeros((count, units), dtype=np.int64),
        np.zeros((count, units), dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.full(count, -1, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.full(count, -1, dtype=np.int64),
        np.full(count, NEVER, dtype=np.int64),
    )


@compiled
def give_back(credits: Credits, cluster: int, time: int) -> None:
    """Send a credit on its way; it is at the controller at ``time``."""
    credits.back_at[cluster, credits.returned[cluster] % credits.back_at.shape[1]] = time
    credits.returned[cluster] += 1


@compiled
def end_items(
    traffic: Traffic, timing: Timing, plan: Plan, clusters: Clusters, queue: Credits, slots: Credits, time: int
) -> int:
    """Pieces that all units have walked: their places, the blocks of a step that is over, and rounds close.

    Returns ``time`` if a piece ended, else 0.
    """
    mesh_columns = traffic.round_flits.shape[2]
    ended = 0
    for cluster in range(plan.item_count.size):
        place, row = cluster % mesh_columns, cluster // mesh_columns
        while clusters.items_done[cluster] < plan.item_count[cluster]:
            item = clusters.items_done[cluster]
            if not all_ended(clusters, cluster, item, time):
                break
            ended = time
            clusters.items_done[cluster] += 1
            give_back(queue, cluster, time + timing.hop_cycles * (place + 1))
            is_last = clusters.items_done[cluster] == plan.item_count[cluster]
            if is_last or plan.item_blocks[cluster, item + 1] > plan.item_blocks[cluster, item]:  # the step is over
                back = place if traffic.reduces else row
                for _ in range(clusters.blocks_freed[cluster], plan.item_blocks[cluster, item]):
                    give_back(slots, cluster, time + timing.hop_cycles * (back + 1))
                clusters.blocks_freed[cluster] = plan.item_blocks[cluster, item]
            if is_last or plan.item_round[cluster, item + 1] != plan.item_round[cluster, item]:
                clusters.rounds_done[cluster] = plan.item_round[cluster, item]
    return ended


@compiled
def all_ended(clusters: Clusters, cluster: int, item: int, time: int) -> bool:
    """Whether every unit of a cluster has walked a piece."""
    for unit in range(clusters.begun.shape[1]):
        begun = clusters.begun[cluster, unit]
        if begun <= item or (begun == item + 1 and clusters.busy_until[cluster, unit] > time):
            return False
    return True


@compiled
def drain_results(traffic: Traffic, timing: Timing, plan: Plan, clusters: Clusters, time: int, log: EventLog) -> int:
    """Results of closed rounds leave, a flit in a cluster's own cycles; returns when the last is at the edge."""
    rounds, mesh_columns = traffic.round_flits.shape[0], traffic.round_flits.shape[2]
    logs = log.sent_at.size > 0
    end = 0
    for cluster in range(plan.item_count.size):
        place = cluster % mesh_columns
        while clusters.drain_round[cluster] < rounds:
            number = clusters.drain_round[cluster]
            if clusters.drain_left[cluster] < 0:
                if not plan.takes_part[number, cluster]:
                    clusters.drain_round[cluster] += 1
                    continue
                if not round_is_closed(traffic, plan, clusters, number, cluster):
                    break
                start_drain(traffic, timing, clusters, number, cluster, time)
                if logs:
                    log.first_left[number, cluster] = time if traffic.reduces else -1
            if clusters.drain_until[cluster] > time:
                if clusters.drain_left[cluster] > 0 and time % timing.result_period == place:  # a cycle of its own
                    if logs:
                        if log.first_left[number, cluster] < 0:
                            log.first_left[number, cluster] = time
                        log.last_left[number, cluster] = time
                    clusters.drain_left[cluster] -= 1
                    if clusters.drain_left[cluster] == 0:
                        clusters.drain_until[cluster] = time + 1 + timing.result_flit_cycles
                break
            clusters.emptied[cluster] += 1
            if logs:
                log.emptied_at[number, cluster] = time
            end = max(end, time if traffic.reduces else time + timing.hop_cycles * (place + 1))
            clusters.drain_round[cluster] += 1
            clusters.drain_left[cluster] = -1
    return end


@compiled
def round_is_closed(traffic: Traffic, plan: Plan, clusters: Clusters, number: int, cluster: int) -> bool:
    """Whether a round's pieces are done, in this cluster or, where columns add up, in all of its column."""
    mesh_rows, mesh_columns = traffic.round_flits.shape[1], traffic.round_flits.shape[2]
    for row in range(mesh_rows):
        other = row * mesh_columns + cluster % mesh_columns
        concerned = (traffic.reduces or other == cluster) and plan.has_items[number, other]
        if concerned and clusters.rounds_done[other] < number:
            return False
    return True


@compiled
def start_drain(traffic: Traffic, timing: Timing, clusters: Clusters, number: int, cluster: int, time: int) -> None:
    """Begin to send the results of a round off."""
    mesh_rows, mesh_columns = traffic.round_flits.shape[1], traffic.round_flits.shape[2]
    flits = 0 if timing.ideal_links else traffic.round_flits[number, cluster // mesh_columns, cluster % mesh_columns]
    clusters.drain_left[cluster] = 0 if traffic.reduces else flits
    clusters.drain_until[cluster] = NEVER
    if traffic.reduces:
        clusters.drain_until[cluster] = time + timing.hop_cycles * mesh_rows + flits * timing.sum_flit_cycles
    elif flits == 0:
        clusters.drain_until[cluster] = time


@compiled
def send_packets(
    traffic: Traffic,
    timing: Timing,
    controllers: Controllers,
    clusters: Clusters,
    queue: Credits,
    slots: Credits,
    time: int,
    log: EventLog,
) -> None:
    """Controllers send the packet at their head, if they may, and ask for one more; ideal links take any number."""
    for line in range(traffic.first.size - 1):
        while controllers.head[line] < traffic.first[line + 1]:
            packet = controllers.head[line]
            reason = may_send(traffic, timing, controllers, queue, slots, line, time)
            if reason < 0:
                break
            deliver(traffic, timing, clusters, queue, slots, line, time, packet, reason)
            controllers.link_free[line] = time if timing.ideal_links else time + traffic.flits[packet]
            controllers.head[line] += 1
            if log.sent_at.size > 0:
                log.sent_at[packet] = time
            if not timing.ideal_links:
                break
        ask(traffic, timing, controllers, line, time)


@compiled
def may_send(
    traffic: Traffic, timing: Timing, controllers: Controllers, queue: Credits, slots: Credits, line: int, time: int
) -> int:
    """What the packet at the head of a line waited for last, -1: it still waits."""
    mesh_rows, mesh_columns = traffic.round_flits.shape[1], traffic.round_flits.shape[2]
    packet = controllers.head[line]
    window = (packet - traffic.first[line]) % timing.prefetch_packets
    since, reason = controllers.ready_at[line, window], controllers.ready_reason[line, window]
    if since > time or controllers.asked[line] <= packet or controllers.link_free[line] > time:
        return -1
    if controllers.link_free[line] > since:
        since, reason = controllers.link_free[line], MESH
    credits = queue if traffic.serial[packet] else slots
    for place in range(places_of(line, mesh_rows, mesh_columns)):
        if not takes(traffic.destinations[packet], place):
            continue
        cluster = cluster_at(line, place, mesh_rows, mesh_columns)
        if credits.left[cluster] == 0:
            back_at = credits.back_at[cluster, credits.used[cluster] % credits.back_at.shape[1]]
            if credits.used[cluster] == credits.returned[cluster] or back_at > time:
                return -1
            if back_at > since:
                since, reason = back_at, IMBALANCE
    return int(reason)


@compiled
def deliver(
    traffic: Traffic,
    timing: Timing,
    clusters: Clusters,
    queue: Credits,
    slots: Credits,
    line: int,
    time: int,
    packet: int,
    reason: int,
) -> None:
    """Put a packet on its way to all destinations, a credit each."""
    mesh_rows, mesh_columns = traffic.round_flits.shape[1], traffic.round_flits.shape[2]
    credits = queue if traffic.serial[packet] else slots
    for place in range(places_of(line, mesh_rows, mesh_columns)):
        if not takes(traffic.destinations[packet], place):
            continue
        cluster = cluster_at(line, place, mesh_rows, mesh_columns)
        if credits.left[cluster] > 0:
            credits.left[cluster] -= 1
        else:
            credits.used[cluster] += 1
        arrival = arrival_of(time, traffic.flits[packet], place, timing)
        if traffic.serial[packet]:
            number = clusters.items_sent[cluster]
            clusters.item_at[cluster, number], clusters.item_reason[cluster, number] = arrival, reason
            clusters.items_sent[cluster] += 1
        else:
            number = clusters.blocks_sent[cluster]
            clusters.block_at[cluster, number], clusters.block_reason[cluster, number] = arrival, reason
            clusters.blocks_sent[cluster] += 1


@compiled
def ask(traffic: Traffic, timing: Timing, controllers: Controllers, line: int, time: int) -> None:
    """Ask memory for one more packet, if there is room for it."""
    packet = controllers.asked[line]
    if packet == traffic.first[line + 1] or packet - controllers.head[line] >= timing.prefetch_packets:
        return
    window = (packet - traffic.first[line]) % timing.prefetch_packets
    controllers.ready_at[line, window], controllers.ready_reason[line, window] = time + timing.sram_cycles, FILL
    if traffic.dram_ticks[packet] > 0:
        controllers.dram_free[line] = max(controllers.dram_free[line], time << 16) + traffic.dram_ticks[packet]
        controllers.ready_at[line, window] = ((controllers.dram_free[line] + 65535) >> 16) + timing.dram_cycles
        controllers.ready_reason[line, window] = MEMORY
    controllers.asked[line] += 1


@compiled
def begin_items(
    traffic: Traffic, plan: Plan, clusters: Clusters, time: int, unit_cycles: Int64s, log: EventLog
) -> None:
    """Units that are free begin their next piece, if it and its blocks are there and one of the banks is empty."""
    mesh_columns, units = traffic.round_flits.shape[2], clusters.begun.shape[1]
    for cluster in range(plan.item_count.size):
        for unit in range(units):
            item, before = clusters.begun[cluster, unit], clusters.busy_until[cluster, unit]
            if item == plan.item_count[cluster] or before > time:
                continue
            blocks = plan.item_blocks[cluster, item]
            blocks_at = clusters.block_at[cluster, blocks - 1] if blocks else 0
            if clusters.item_at[cluster, item] > time or blocks_at > time:
                continue
            if plan.filled_before[plan.item_round[cluster, item], cluster] - clusters.emptied[cluster] >= 2:
                continue  # both banks hold results
            since, waited_for = before, FILL
            if clusters.item_at[cluster, item] > since:
                since, waited_for = clusters.item_at[cluster, item], clusters.item_reason[cluster, item]
            if blocks_at > since:
                since, waited_for = blocks_at, first_reason(clusters, cluster, blocks - 1)
            if time > since:
                waited_for = DRAIN
            work = traffic.item_cycles[plan.item_of[cluster, item], unit]
            unit_cycles[cluster * units + unit, waited_for] += time - before
            unit_cycles[cluster * units + unit, WORK if work else SCAN] += max(1, work)
            clusters.busy_until[cluster, unit] = time + max(1, work)
            clusters.begun[cluster, unit] += 1
            if log.sent_at.size > 0:
                log.begun_at[plan.item_packet[cluster, item], cluster % mesh_columns, unit] = time


@compiled
def first_reason(clusters: Clusters, cluster: int, block: int) -> int:
    """The reason of the first of the blocks that came in the same cycle as ``block``."""
    while block > 0 and clusters.block_at[cluster, block - 1] == clusters.block_at[cluster, block]:
        block -= 1
    return int(clusters.block_reason[cluster, block])
