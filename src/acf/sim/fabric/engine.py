"""When everything on the fabric happens, without stepping through cycles.

Every link has one sender, every queue is served in order, and a packet leaves its controller only when all its
destinations have room. So each event is the latest of a few earlier ones, and one walk over the packets in order
gives exact times. `acf.sim.fabric.stepper` is the same machine cycle by cycle; the two agree to the cycle.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
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
    line_of_turn,
    places_of,
    takes,
)

Int64s = NDArray[np.int64]


class Times(NamedTuple):
    """Since when everything is free, in cycles; what is written last about a place is what its next user waits for.

    By line: the link, the next request, DRAM (in fractions), and ``sent`` of the last packets ``[lines, prefetch]``. By
    cluster: ``queue_free [clusters, queue]`` and how many pieces were ``queued``; ``slot_free [clusters, slots]``, how
    many slots were ``taken`` and how many of those are ``closed``; ``blocks_at`` and ``blocks_reason`` of the last
    block; ``finish [clusters, units]``; ``last_free``, when its last piece was done; its two banks and which one it
    fills; its drain; and how many pieces of the round it had.
    """

    link: Int64s
    request: Int64s
    dram: Int64s
    sent: Int64s
    queue_free: Int64s
    queued: Int64s
    slot_free: Int64s
    taken: Int64s
    closed: Int64s
    blocks_at: Int64s
    blocks_reason: Int64s
    finish: Int64s
    last_free: Int64s
    bank_free: Int64s
    bank: Int64s
    drain_free: Int64s
    items_in_round: Int64s


@compiled
def play_program(traffic: Traffic, timing: Timing, unit_cycles: Int64s) -> int:
    """Cycles of a program; adds to ``unit_cycles [clusters * units, reasons]``."""
    mesh_rows, mesh_columns = traffic.round_flits.shape[1], traffic.round_flits.shape[2]
    lines, clusters, units = mesh_rows + mesh_columns, mesh_rows * mesh_columns, traffic.item_cycles.shape[1]
    times = Times(
        np.zeros(lines, dtype=np.int64),
        np.zeros(lines, dtype=np.int64),
        np.zeros(lines, dtype=np.int64),
        np.zeros((lines, timing.prefetch_packets), dtype=np.int64),
        np.zeros((clusters, timing.queue_packets), dtype=np.int64),
        np.zeros(clusters, dtype=np.int64),
        np.zeros((clusters, timing.parallel_slots), dtype=np.int64),
        np.zeros(clusters, dtype=np.int64),
        np.zeros(clusters, dtype=np.int64),
        np.zeros(clusters, dtype=np.int64),
        np.full(clusters, FILL, dtype=np.int64),
        np.zeros((clusters, units), dtype=np.int64),
        np.zeros(clusters, dtype=np.int64),
        np.zeros((clusters, 2), dtype=np.int64),
        np.zeros(clusters, dtype=np.int64),
        np.zeros(clusters, dtype=np.int64),
        np.zeros(clusters, dtype=np.int64),
    )
    next_packet = traffic.first[:-1].copy()
    steps, end = traffic.round_of_k_step.size, 0
    for step in range(steps):
        for turn in range(lines):
            line = line_of_turn(turn, mesh_rows, mesh_columns)
            while next_packet[line] < traffic.first[line + 1] and traffic.k_step[next_packet[line]] == step:
                packet = next_packet[line]
                next_packet[line] += 1
                time, reason = send(traffic, timing, times, line, packet)
                item = traffic.item_first[packet]
                for place in range(places_of(line, mesh_rows, mesh_columns)):
                    if not takes(traffic.destinations[packet], place):
                        continue
                    cluster = cluster_at(line, place, mesh_rows, mesh_columns)
                    arrival = arrival_of(time, traffic.flits[packet], place, timing)
                    if traffic.serial[packet]:
                        walk(times, traffic.item_cycles[item], cluster, arrival, reason, unit_cycles)
                        item += 1
                    else:
                        times.taken[cluster] += 1
                        if arrival > times.blocks_at[cluster]:
                            times.blocks_at[cluster], times.blocks_reason[cluster] = arrival, reason
        close_step(timing, times)
        if step + 1 == steps or traffic.round_of_k_step[step + 1] != traffic.round_of_k_step[step]:
            end = max(end, close_round(traffic, timing, times, traffic.round_of_k_step[step]))
    latest = times.finish.max()
    end = max(end, latest)
    for who in range(clusters * units):
        unit_cycles[who, IMBALANCE] += latest - times.finish[who // units, who % units]
        unit_cycles[who, DRAIN] += end - latest
    return int(end)


@compiled
def send(traffic: Traffic, timing: Timing, times: Times, line: int, packet: int) -> tuple[int, int]:
    """When a packet leaves its controller, and what it last waited for."""
    mesh_rows, mesh_columns = traffic.round_flits.shape[1], traffic.round_flits.shape[2]
    place_in_window = (packet - traffic.first[line]) % timing.prefetch_packets
    # The controller asks for one packet a cycle, as far ahead as it has room, and memory answers.
    request = max(times.request[line], times.sent[line, place_in_window])
    times.request[line] = request + 1
    time, reason = request + timing.sram_cycles, FILL
    if traffic.dram_ticks[packet] > 0:
        times.dram[line] = max(times.dram[line], request << 16) + traffic.dram_ticks[packet]
        time, reason = ((times.dram[line] + 65535) >> 16) + timing.dram_cycles, MEMORY
    if times.link[line] > time:
        time, reason = times.link[line], MESH
    for place in range(places_of(line, mesh_rows, mesh_columns)):
        if takes(traffic.destinations[packet], place):
            cluster = cluster_at(line, place, mesh_rows, mesh_columns)
            credit = 0
            if traffic.serial[packet]:
                if times.queued[cluster] >= timing.queue_packets:
                    credit = times.queue_free[cluster, times.queued[cluster] % timing.queue_packets]
            elif times.taken[cluster] >= timing.parallel_slots:
                credit = times.slot_free[cluster, times.taken[cluster] % timing.parallel_slots]
            if credit and credit + timing.hop_cycles * (place + 1) > time:
                time, reason = credit + timing.hop_cycles * (place + 1), IMBALANCE
    times.sent[line, place_in_window] = time
    times.link[line] = time if timing.ideal_links else time + traffic.flits[packet]
    return time, reason


@compiled
def walk(times: Times, cycles: NDArray[np.int32], cluster: int, arrival: int, reason: int, unit_cycles: Int64s) -> None:
    """The units of a cluster walk a piece that arrives, each for its ``cycles [units]``, and then its place is free."""
    free = 0
    for unit in range(cycles.size):
        before = times.finish[cluster, unit]
        start, waited_for = before, FILL
        if arrival > start:
            start, waited_for = arrival, reason
        if times.blocks_at[cluster] > start:
            start, waited_for = times.blocks_at[cluster], times.blocks_reason[cluster]
        if times.bank_free[cluster, times.bank[cluster]] > start:
            start, waited_for = times.bank_free[cluster, times.bank[cluster]], DRAIN
        cost = max(1, cycles[unit])
        who = cluster * cycles.size + unit
        unit_cycles[who, waited_for] += start - before
        unit_cycles[who, WORK if cycles[unit] else SCAN] += cost
        times.finish[cluster, unit] = start + cost
        free = max(free, start + cost)
    times.queue_free[cluster, times.queued[cluster] % times.queue_free.shape[1]] = free
    times.queued[cluster] += 1
    times.last_free[cluster] = free
    times.items_in_round[cluster] += 1


@compiled
def close_step(timing: Timing, times: Times) -> None:
    """The blocks of a step are free when the cluster's last piece of it is done."""
    for cluster in range(times.taken.size):
        for slot in range(times.closed[cluster], times.taken[cluster]):
            times.slot_free[cluster, slot % timing.parallel_slots] = times.last_free[cluster]
        times.closed[cluster] = times.taken[cluster]


@compiled
def close_round(traffic: Traffic, timing: Timing, times: Times, number: int) -> int:
    """Send the results of a round off and change banks; returns when the last of them is at the edge."""
    mesh_rows, mesh_columns = traffic.round_flits.shape[1], traffic.round_flits.shape[2]
    end = 0
    for column in range(mesh_columns):
        done = 0
        for row in range(mesh_rows):
            cluster = row * mesh_columns + column
            if times.items_in_round[cluster]:
                done = max(done, times.last_free[cluster])
        for row in range(mesh_rows):
            cluster = row * mesh_columns + column
            if not times.items_in_round[cluster] and not (traffic.reduces and done):
                continue
            flits = 0 if timing.ideal_links else traffic.round_flits[number, row, column]
            if traffic.reduces:
                left = max(done, times.drain_free[cluster])
                left += timing.hop_cycles * mesh_rows + flits * timing.sum_flit_cycles
                home = left
            else:
                left = max(times.last_free[cluster], times.drain_free[cluster])
                if flits:
                    wait = (column - left) % timing.result_period
                    left += wait + (flits - 1) * timing.result_period + 1 + timing.result_flit_cycles
                home = left + timing.hop_cycles * (column + 1)
            times.bank_free[cluster, times.bank[cluster]] = left
            times.bank[cluster] = 1 - times.bank[cluster]
            times.drain_free[cluster] = left
            end = max(end, home)
    times.items_in_round[:] = 0
    return end
