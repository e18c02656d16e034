"""When everything on the fabric happens, without stepping through cycles.

Every link has one sender, every queue is served in order, and a packet leaves its controller only when all its takers
have room. So each event is the latest of a few earlier ones, and one walk over the packets in order gives exact
times. `acf.sim.fabric.stepper` is the same machine cycle by cycle; the two agree to the cycle.
"""

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled

REASONS = ("work", "scan", "fill", "memory", "mesh", "imbalance", "drain")
"""What a unit does with a cycle: it works, passes over a piece that holds nothing for it, or waits for a reason.

fill: for the first packets; memory: for DRAM; mesh: for a link that carries other packets; imbalance: for slower
clusters, whose full queues hold up the line, and at the end for the last unit; drain: for results to leave.
"""

WORK, SCAN, FILL, MEMORY, MESH, IMBALANCE, DRAIN = range(len(REASONS))

FRACTION_BITS = 16
"""DRAM time is counted in 1/65536 cycles, so that a packet's share of a cycle is not rounded away."""


@compiled
def play_program(
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
) -> int:
    """Cycles of a program; adds to ``unit_cycles [clusters * units, reasons]``.

    ``dram_ticks``: for every row packet the DRAM time of its controller, in 1/65536 cycles; 0: it is on chip.
    """
    mesh_rows, mesh_columns = round_flits.shape[1], round_flits.shape[2]
    clusters, units = mesh_rows * mesh_columns, item_cycles.shape[1]
    hop = 0 if ideal_links else hop_cycles
    lines = mesh_rows + mesh_columns
    next_packet = np.concatenate((row_first[:-1], column_first[:-1]))
    first_packet = next_packet.copy()
    link_free = np.zeros(lines, dtype=np.int64)
    request_free = np.zeros(lines, dtype=np.int64)
    dram_free = np.zeros(lines, dtype=np.int64)
    sent = np.zeros((lines, prefetch_packets), dtype=np.int64)
    queue_free = np.zeros((clusters, queue_packets), dtype=np.int64)
    queued = np.zeros(clusters, dtype=np.int64)
    slot_free = np.zeros((clusters, parallel_slots), dtype=np.int64)
    slots_taken = np.zeros(clusters, dtype=np.int64)
    slots_closed = np.zeros(clusters, dtype=np.int64)
    blocks_at = np.zeros(clusters, dtype=np.int64)
    blocks_reason = np.full(clusters, FILL, dtype=np.int64)
    finish = np.zeros((clusters, units), dtype=np.int64)
    last_free = np.zeros(clusters, dtype=np.int64)
    bank_free = np.zeros((clusters, 2), dtype=np.int64)
    drain_free = np.zeros(clusters, dtype=np.int64)
    items_in_round = np.zeros(clusters, dtype=np.int64)
    bank = np.zeros(clusters, dtype=np.int64)
    end = 0
    for step in range(round_of_step.size):
        round_number = round_of_step[step]
        for turn in range(lines):
            line = turn + mesh_rows if turn < mesh_columns else turn - mesh_columns  # columns first, then rows
            is_row = line < mesh_rows
            last_packet = row_first[line + 1] if is_row else column_first[line - mesh_rows + 1]
            while next_packet[line] < last_packet:
                packet = next_packet[line]
                if (row_step[packet] if is_row else column_step[packet]) != step:
                    break
                flits = row_flits[packet] if is_row else column_flits[packet]
                takers = row_takers[packet] if is_row else column_takers[packet]
                serial = is_row and row_kind[packet] == 0
                number = packet - first_packet[line]
                # The controller asks for one packet a cycle, as far ahead as it has room, and memory answers.
                request = request_free[line]
                if number >= prefetch_packets:
                    request = max(request, sent[line, number % prefetch_packets])
                request_free[line] = request + 1
                reason = FILL
                ready = request + sram_cycles
                if is_row and dram_ticks[packet] > 0:
                    dram_free[line] = max(dram_free[line], request << 16) + dram_ticks[packet]
                    ready = ((dram_free[line] + 65535) >> 16) + dram_cycles
                    reason = MEMORY
                time = ready
                if link_free[line] > time:
                    time, reason = link_free[line], MESH
                distance = 0
                for place in range(mesh_columns if is_row else mesh_rows):
                    if (takers >> np.uint64(place)) & np.uint64(1):
                        cluster = line * mesh_columns + place if is_row else place * mesh_columns + line - mesh_rows
                        credit = 0
                        if serial and queued[cluster] >= queue_packets:
                            credit = queue_free[cluster, queued[cluster] % queue_packets] + hop * (place + 1)
                        if not serial and slots_taken[cluster] >= parallel_slots:
                            credit = slot_free[cluster, slots_taken[cluster] % parallel_slots] + hop * (place + 1)
                        if credit > time:
                            time, reason = credit, IMBALANCE
                        distance = place + 1
                sent[line, number % prefetch_packets] = time
                link_free[line] = time if ideal_links else time + flits
                next_packet[line] += 1
                item = item_first[packet] if serial else 0
                for place in range(distance):
                    if not (takers >> np.uint64(place)) & np.uint64(1):
                        continue
                    cluster = line * mesh_columns + place if is_row else place * mesh_columns + line - mesh_rows
                    arrival = time if ideal_links else time + flits + hop * (place + 1)
                    if not serial:
                        slots_taken[cluster] += 1
                        if arrival > blocks_at[cluster]:
                            blocks_at[cluster], blocks_reason[cluster] = arrival, reason
                        continue
                    free = 0
                    for unit in range(units):
                        cost = max(1, item_cycles[item, unit])
                        before = finish[cluster, unit]
                        start, waited_for = before, FILL
                        if arrival > start:
                            start, waited_for = arrival, reason
                        if blocks_at[cluster] > start:
                            start, waited_for = blocks_at[cluster], blocks_reason[cluster]
                        if bank_free[cluster, bank[cluster]] > start:
                            start, waited_for = bank_free[cluster, bank[cluster]], DRAIN
                        who = cluster * units + unit
                        unit_cycles[who, waited_for] += start - before
                        unit_cycles[who, WORK if item_cycles[item, unit] else SCAN] += cost
                        finish[cluster, unit] = start + cost
                        free = max(free, start + cost)
                    queue_free[cluster, queued[cluster] % queue_packets] = free
                    queued[cluster] += 1
                    item += 1
                    last_free[cluster] = free
                    items_in_round[cluster] += 1
        for cluster in range(clusters):
            for slot in range(slots_closed[cluster], slots_taken[cluster]):
                slot_free[cluster, slot % parallel_slots] = last_free[cluster]
            slots_closed[cluster] = slots_taken[cluster]
        if step + 1 < round_of_step.size and round_of_step[step + 1] == round_number:
            continue
        for column in range(mesh_columns):
            done = 0
            for row in range(mesh_rows):
                cluster = row * mesh_columns + column
                if items_in_round[cluster]:
                    done = max(done, last_free[cluster])
            for row in range(mesh_rows):
                cluster = row * mesh_columns + column
                if not items_in_round[cluster] and not (reduces and done):
                    continue
                flits = round_flits[round_number, row, column]
                if reduces:
                    left = max(done, drain_free[cluster])
                    if not ideal_links:
                        left += hop * mesh_rows + flits * sum_flit_cycles
                    home = left
                else:
                    left = max(last_free[cluster], drain_free[cluster])
                    if not ideal_links and flits:
                        left += (column - left) % result_period + (flits - 1) * result_period + 1 + result_flit_cycles
                    home = left + hop * (column + 1)
                bank_free[cluster, bank[cluster]] = left
                bank[cluster] = 1 - bank[cluster]
                drain_free[cluster] = left
                end = max(end, home)
        items_in_round[:] = 0
    latest = finish.max()
    end = max(end, latest)
    for cluster in range(clusters):
        for unit in range(units):
            unit_cycles[cluster * units + unit, IMBALANCE] += latest - finish[cluster, unit]
            unit_cycles[cluster * units + unit, DRAIN] += end - latest
    return int(end)
