"""The fabric cycle by cycle: credits, queues, units and drains change state once in every cycle, as in hardware.

Nothing here looks ahead: a controller knows its credits, a cluster what has arrived, a unit when it is done. Links are
pipelines of fixed length, so a flit or a credit on its way is a time of arrival.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
from acf.sim.fabric.engine import DRAIN, FILL, IMBALANCE, MEMORY, MESH, SCAN, WORK

NEVER = 1 << 62


class EventLog(NamedTuple):
    """When things happened, in cycles; -1: not at all. An empty log (no packets) records nothing.

    ``sent_at [row packets + column packets]``; ``begun_at [row packets, mesh_columns, units]``; by round and cluster
    ``first_left``, ``last_left`` (the first and last flit of results; of partial sums when they begin to move) and
    ``emptied_at``, int64 all.
    """

    sent_at: NDArray[np.int64]
    begun_at: NDArray[np.int64]
    first_left: NDArray[np.int64]
    last_left: NDArray[np.int64]
    emptied_at: NDArray[np.int64]

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


def step_program(*arguments: Any) -> int:
    """Cycles of a program; adds to ``unit_cycles [clusters * units, reasons]``. Arguments as of `play_program`."""
    stepped: Callable[..., int] = step_and_log
    return stepped(*arguments, EventLog.of_size(0, 0, 0, 0, 0, 0))


@compiled
def step_and_log(
    row_first: NDArray[np.int64],
    row_kind: NDArray[np.uint8],
    row_step: NDArray[np.int32],
    row_flits: NDArray[np.int32],
    row_takers: NDArray[np.uint64],
    item_first: NDArray[np.int64],
    item_cycles: NDArray[np.int32],
    column_first: NDArray[np.int64],
    column_step: NDArray[np.int32],
    column_flits: NDArray[np.int32],
    column_takers: NDArray[np.uint64],
    round_of_step: NDArray[np.int32],
    round_flits: NDArray[np.int32],
    dram_ticks: NDArray[np.int64],
    reduces: bool,
    ideal_links: bool,
    queue_packets: int,
    parallel_slots: int,
    prefetch_packets: int,
    hop_cycles: int,
    sram_cycles: int,
    dram_cycles: int,
    result_period: int,
    result_flit_cycles: int,
    sum_flit_cycles: int,
    unit_cycles: NDArray[np.int64],
    log: EventLog,
) -> int:
    """As `step_program`, and writes into ``log`` when everything happened."""
    logs = log.sent_at.size > 0
    mesh_rows, mesh_columns = round_flits.shape[1], round_flits.shape[2]
    clusters, units = mesh_rows * mesh_columns, item_cycles.shape[1]
    hop = 0 if ideal_links else hop_cycles
    lines = mesh_rows + mesh_columns
    rounds = round_flits.shape[0]

    # What every cluster will see, in order: its serial packets, and how many blocks each of them waits for.
    item_count = np.zeros(clusters, dtype=np.int64)
    for line in range(mesh_rows):
        for packet in range(row_first[line], row_first[line + 1]):
            for place in range(mesh_columns):
                if row_kind[packet] == 0 and (row_takers[packet] >> np.uint64(place)) & np.uint64(1):
                    item_count[line * mesh_columns + place] += 1
    most = max(1, item_count.max())
    item_of = np.zeros((clusters, most), dtype=np.int64)
    item_packet = np.zeros((clusters, most), dtype=np.int64)
    item_blocks = np.zeros((clusters, most), dtype=np.int64)
    item_round = np.zeros((clusters, most), dtype=np.int64)
    filled = np.zeros(clusters, dtype=np.int64)
    blocks_due = np.zeros(clusters, dtype=np.int64)
    has_items = np.zeros((rounds, clusters), dtype=np.bool_)
    seen = np.concatenate((row_first[:-1], column_first[:-1]))
    for step in range(round_of_step.size):
        for turn in range(lines):
            line = turn + mesh_rows if turn < mesh_columns else turn - mesh_columns
            is_row = line < mesh_rows
            last = row_first[line + 1] if is_row else column_first[line - mesh_rows + 1]
            while seen[line] < last:
                packet = seen[line]
                if (row_step[packet] if is_row else column_step[packet]) != step:
                    break
                seen[line] += 1
                takers = row_takers[packet] if is_row else column_takers[packet]
                item = item_first[packet] if is_row else 0
                for place in range(mesh_columns if is_row else mesh_rows):
                    if not (takers >> np.uint64(place)) & np.uint64(1):
                        continue
                    cluster = line * mesh_columns + place if is_row else place * mesh_columns + line - mesh_rows
                    if is_row and row_kind[packet] == 0:
                        item_of[cluster, filled[cluster]] = item
                        item_packet[cluster, filled[cluster]] = packet
                        item += 1
                        item_blocks[cluster, filled[cluster]] = blocks_due[cluster]
                        item_round[cluster, filled[cluster]] = round_of_step[step]
                        has_items[round_of_step[step], cluster] = True
                        filled[cluster] += 1
                    else:
                        blocks_due[cluster] += 1
    most_blocks = max(1, blocks_due.max())
    # Rounds in which a cluster fills a bank: its own, or, where columns add up, those of anyone in its column.
    takes_part = has_items.copy()
    if reduces:
        for cluster in range(clusters):
            for row in range(mesh_rows):
                takes_part[:, cluster] |= has_items[:, row * mesh_columns + cluster % mesh_columns]

    # Controllers.
    head = np.concatenate((row_first[:-1], column_first[:-1]))
    begin = head.copy()
    stop = np.concatenate((row_first[1:], column_first[1:]))
    asked = head.copy()
    ready_at = np.full((lines, prefetch_packets), NEVER, dtype=np.int64)
    ready_reason = np.full((lines, prefetch_packets), FILL, dtype=np.int64)
    dram_free = np.zeros(lines, dtype=np.int64)
    link_free = np.zeros(lines, dtype=np.int64)
    # Credits of a controller for one taker, and those on their way back: times in the order of returning.
    queue_credits = np.full(clusters, queue_packets, dtype=np.int64)
    slot_credits = np.full(clusters, parallel_slots, dtype=np.int64)
    queue_return = np.full((clusters, queue_packets), NEVER, dtype=np.int64)
    slot_return = np.full((clusters, parallel_slots), NEVER, dtype=np.int64)
    queue_returned = np.zeros((clusters, 2), dtype=np.int64)  # written, read
    slot_returned = np.zeros((clusters, 2), dtype=np.int64)
    # Clusters.
    item_at = np.full((clusters, most), NEVER, dtype=np.int64)
    item_reason = np.zeros((clusters, most), dtype=np.int64)
    items_sent = np.zeros(clusters, dtype=np.int64)
    block_at = np.full((clusters, most_blocks), NEVER, dtype=np.int64)
    block_reason = np.zeros((clusters, most_blocks), dtype=np.int64)
    blocks_sent = np.zeros(clusters, dtype=np.int64)
    blocks_freed = np.zeros(clusters, dtype=np.int64)
    unit_item = np.zeros((clusters, units), dtype=np.int64)  # items that the unit has begun
    busy_until = np.zeros((clusters, units), dtype=np.int64)
    items_done = np.zeros(clusters, dtype=np.int64)
    rounds_done = np.full(clusters, -1, dtype=np.int64)
    # Results: the round that is leaving, its flits left, and how many banks were filled before and have been emptied.
    emptied = np.zeros(clusters, dtype=np.int64)
    filled_before = np.zeros((rounds, clusters), dtype=np.int64)
    for number in range(1, rounds):
        filled_before[number] = filled_before[number - 1] + takes_part[number - 1]
    drain_round = np.zeros(clusters, dtype=np.int64)
    drain_left = np.full(clusters, -1, dtype=np.int64)
    drain_until = np.full(clusters, NEVER, dtype=np.int64)
    end, latest, time = 0, 0, 0
    while True:
        pending = False
        # 1. Units that end in this cycle, rounds that close, results that leave.
        for cluster in range(clusters):
            place, row = cluster % mesh_columns, cluster // mesh_columns
            while items_done[cluster] < item_count[cluster]:
                item = items_done[cluster]
                finished = True
                for unit in range(units):
                    begun = unit_item[cluster, unit]
                    if begun <= item or (begun == item + 1 and busy_until[cluster, unit] > time):
                        finished = False
                        break
                if not finished:
                    break
                items_done[cluster] += 1
                latest = max(latest, time)
                queue_return[cluster, queue_returned[cluster, 0] % queue_packets] = time + hop * (place + 1)
                queue_returned[cluster, 0] += 1
                is_last = items_done[cluster] == item_count[cluster]
                until = blocks_due[cluster] if is_last else item_blocks[cluster, item + 1]
                if is_last or until > item_blocks[cluster, item]:  # the step is over: its blocks are free
                    for _ in range(blocks_freed[cluster], item_blocks[cluster, item]):
                        back = row if not reduces else place
                        slot_return[cluster, slot_returned[cluster, 0] % parallel_slots] = time + hop * (back + 1)
                        slot_returned[cluster, 0] += 1
                    blocks_freed[cluster] = item_blocks[cluster, item]
                if is_last or item_round[cluster, item + 1] != item_round[cluster, item]:
                    rounds_done[cluster] = item_round[cluster, item]
        for cluster in range(clusters):
            place = cluster % mesh_columns
            while drain_round[cluster] < rounds:
                number = drain_round[cluster]
                if drain_left[cluster] < 0:
                    if not takes_part[number, cluster]:
                        drain_round[cluster] += 1
                        continue
                    done = True
                    for row in range(mesh_rows):
                        other = row * mesh_columns + place
                        if (reduces or other == cluster) and has_items[number, other]:
                            done &= rounds_done[other] >= number
                    if not done:
                        break
                    drain_left[cluster] = 0 if ideal_links else round_flits[number, cluster // mesh_columns, place]
                    drain_until[cluster] = NEVER
                    if logs:
                        log.first_left[number, cluster] = time if reduces else -1
                    if reduces:
                        busy = 0 if ideal_links else hop * mesh_rows + drain_left[cluster] * sum_flit_cycles
                        drain_until[cluster] = time + busy
                        drain_left[cluster] = 0
                    elif drain_left[cluster] == 0:
                        drain_until[cluster] = time
                if drain_until[cluster] > time:
                    if drain_left[cluster] > 0 and time % result_period == place:  # this cycle's slot is its own
                        if logs:
                            if log.first_left[number, cluster] < 0:
                                log.first_left[number, cluster] = time
                            log.last_left[number, cluster] = time
                        drain_left[cluster] -= 1
                        if drain_left[cluster] == 0:
                            drain_until[cluster] = time + 1 + result_flit_cycles
                    break
                emptied[cluster] += 1
                if logs:
                    log.emptied_at[number, cluster] = time
                end = max(end, time if reduces else time + hop * (place + 1))
                drain_round[cluster] += 1
                drain_left[cluster] = -1
            pending |= drain_round[cluster] < rounds
        # 2. Controllers take back credits, send the packet at their head, and ask for one more.
        for line in range(lines):
            is_row = line < mesh_rows
            sends = True
            while sends:
                sends = False
                if head[line] == stop[line]:
                    break
                packet = head[line]
                number = packet - begin[line]
                serial = is_row and row_kind[packet] == 0
                takers = row_takers[packet] if is_row else column_takers[packet]
                flits = row_flits[packet] if is_row else column_flits[packet]
                if ready_at[line, number % prefetch_packets] > time or asked[line] <= packet or link_free[line] > time:
                    break
                credit_at, allowed = 0, True
                for place in range(mesh_columns if is_row else mesh_rows):
                    if not (takers >> np.uint64(place)) & np.uint64(1):
                        continue
                    cluster = line * mesh_columns + place if is_row else place * mesh_columns + line - mesh_rows
                    if serial:
                        if queue_credits[cluster] == 0:
                            read = queue_returned[cluster, 1]
                            if read == queue_returned[cluster, 0] or queue_return[cluster, read % queue_packets] > time:
                                allowed = False
                                break
                            credit_at = max(credit_at, queue_return[cluster, read % queue_packets])
                    elif slot_credits[cluster] == 0:
                        read = slot_returned[cluster, 1]
                        if read == slot_returned[cluster, 0] or slot_return[cluster, read % parallel_slots] > time:
                            allowed = False
                            break
                        credit_at = max(credit_at, slot_return[cluster, read % parallel_slots])
                if not allowed:
                    break
                reason = ready_reason[line, number % prefetch_packets]
                since = ready_at[line, number % prefetch_packets]
                if link_free[line] > since:
                    since, reason = link_free[line], MESH
                if credit_at > since:
                    reason = IMBALANCE
                for place in range(mesh_columns if is_row else mesh_rows):
                    if not (takers >> np.uint64(place)) & np.uint64(1):
                        continue
                    cluster = line * mesh_columns + place if is_row else place * mesh_columns + line - mesh_rows
                    arrival = time if ideal_links else time + flits + hop * (place + 1)
                    if serial:
                        if queue_credits[cluster] > 0:
                            queue_credits[cluster] -= 1
                        else:
                            queue_returned[cluster, 1] += 1
                        item_at[cluster, items_sent[cluster]] = arrival
                        item_reason[cluster, items_sent[cluster]] = reason
                        items_sent[cluster] += 1
                    else:
                        if slot_credits[cluster] > 0:
                            slot_credits[cluster] -= 1
                        else:
                            slot_returned[cluster, 1] += 1
                        block_at[cluster, blocks_sent[cluster]] = arrival
                        block_reason[cluster, blocks_sent[cluster]] = reason
                        blocks_sent[cluster] += 1
                link_free[line] = time if ideal_links else time + flits
                head[line] += 1
                if logs:
                    log.sent_at[packet if is_row else packet + row_first[-1]] = time
                sends = ideal_links
            if asked[line] < stop[line] and asked[line] - head[line] < prefetch_packets:
                place = (asked[line] - begin[line]) % prefetch_packets
                ready_at[line, place] = time + sram_cycles
                ready_reason[line, place] = FILL
                if is_row and dram_ticks[asked[line]] > 0:
                    dram_free[line] = max(dram_free[line], time << 16) + dram_ticks[asked[line]]
                    ready_at[line, place] = ((dram_free[line] + 65535) >> 16) + dram_cycles
                    ready_reason[line, place] = MEMORY
                asked[line] += 1
            pending |= head[line] < stop[line]
        # 3. Units that are free begin their next item, if it and its blocks are there and its bank is empty.
        for cluster in range(clusters):
            for unit in range(units):
                item = unit_item[cluster, unit]
                if item == item_count[cluster] or busy_until[cluster, unit] > time:
                    continue
                needs = item_blocks[cluster, item]
                if item_at[cluster, item] > time or (needs and block_at[cluster, needs - 1] > time):
                    continue
                if filled_before[item_round[cluster, item], cluster] - emptied[cluster] >= 2:
                    continue  # both banks hold results
                work = item_cycles[item_of[cluster, item], unit]
                cost = max(1, work)
                before = busy_until[cluster, unit]
                since, waited_for = before, FILL
                if item_at[cluster, item] > since:
                    since, waited_for = item_at[cluster, item], item_reason[cluster, item]
                if needs and block_at[cluster, needs - 1] > since:
                    since = block_at[cluster, needs - 1]
                    earliest = needs - 1
                    while earliest > 0 and block_at[cluster, earliest - 1] == since:
                        earliest -= 1
                    waited_for = block_reason[cluster, earliest]
                if time > since:
                    waited_for = DRAIN
                who = cluster * units + unit
                unit_cycles[who, waited_for] += time - before
                unit_cycles[who, WORK if work else SCAN] += cost
                busy_until[cluster, unit] = time + cost
                unit_item[cluster, unit] += 1
                if logs:
                    log.begun_at[item_packet[cluster, item], cluster % mesh_columns, unit] = time
            pending |= items_done[cluster] < item_count[cluster]
        if not pending:
            break
        time += 1
    end = max(end, latest)
    for cluster in range(clusters):
        for unit in range(units):
            unit_cycles[cluster * units + unit, IMBALANCE] += latest - busy_until[cluster, unit]
            unit_cycles[cluster * units + unit, DRAIN] += end - latest
    return end
