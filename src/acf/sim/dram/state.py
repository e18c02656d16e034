"""The state of a DRAM controller as arrays that compiled loops share, and its timing rules."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.sim.dram.spec import DramSpec

Int64s = NDArray[np.int64]

LONG_AGO = -(10**9)
"""Sentinel: a cycle before the start that no command still waits for."""

NEVER = 1 << 62
"""Sentinel: a cycle that never comes."""

ACTIVATES, READS, WRITES, REFRESHES, HITS, ACTIVE_CYCLES, COUNTERS = range(7)
"""Columns of `DramState.counts`; the last is their number. Active: at least one row of the channel is open."""


class DramRules(NamedTuple):
    """Minimum cycles between commands, and the queue sizes."""

    groups: int
    banks_per_group: int
    bank_depth: int
    transaction_depth: int
    row_hit_limit: int
    two_buses: bool
    activate_to_column: int
    precharge_to_activate: int
    activate_to_precharge: int
    activate_to_activate: int
    activate_same_group: int
    activate_other_group: int
    four_activates: int
    column_same_group: int
    column_other_group: int
    read_to_write: int
    write_to_read_same_group: int
    write_to_read_other_group: int
    read_to_precharge: int
    write_to_precharge: int
    read_done: int
    write_done: int
    refresh: int
    refresh_interval: int


class DramState(NamedTuple):
    """Everything that changes, ``[channel, ...]``; a request is its number, its bank and its row.

    ``*_ready`` is the first cycle in which that command is allowed as far as this bank (group, channel) is concerned.
    """

    open_row: Int64s  # [channel, bank], -1 when closed
    hits: Int64s  # [channel, bank]: columns taken from the open row
    activate_ready: Int64s  # [channel, bank]
    precharge_ready: Int64s  # [channel, bank]
    column_ready: Int64s  # [channel, bank]
    group_activate_ready: Int64s  # [channel, group + 1]: the last entry is the whole channel's
    group_read_ready: Int64s  # [channel, group + 1]
    group_write_ready: Int64s  # [channel, group + 1]
    activates: Int64s  # [channel, 4]: cycles of the last four activates
    next_activate: Int64s  # [channel]: oldest of them
    open_banks: Int64s  # [channel]
    bank_queue: Int64s  # [channel, bank, depth, 3]: number, row, is write
    bank_count: Int64s  # [channel, bank]
    reads: Int64s  # [channel, depth, 4]: number, bank, row, column
    read_count: Int64s  # [channel]
    writes: Int64s  # [channel, depth, 4]
    write_count: Int64s  # [channel]
    draining: Int64s  # [channel]: writes still to be drained to the banks before reads go on
    turn: Int64s  # [channel]: the bank asked first, after the one that was served last
    refresh_wanted: Int64s  # [channel], 0 or 1
    waiting: Int64s  # [channel]: requests in the queues of banks
    counts: Int64s  # [channel, COUNTERS]
    column_from: Int64s  # [channel]: no column command is possible before this cycle, as things stand
    row_from: Int64s  # [channel]: the same of row commands
    hand_over: Int64s  # [channel]: 0 where no waiting request can go to its bank, as things stand
    queue_changes: Int64s  # [channel]: counts what may let in a request that was refused


class Requests(NamedTuple):
    """Bursts to be read or written, of several sources: source ``s`` owns ``places`` from ``first_of_source[s]`` on."""

    places: Int64s  # [request, 4]: number, bank, row, column, by source and then by time
    channels: Int64s  # [request], by number, as the next two
    is_write: Int64s
    arrival: Int64s  # the cycle from which the request is offered
    first_of_source: Int64s  # [sources + 1]


class Sources(NamedTuple):
    """Where every source of `Requests` stands."""

    cursor: Int64s  # [sources]: the request that it offers next
    refused: (
        Int64s  # [sources]: `DramState.queue_changes` of that request's channel when it was refused, -1: it was not
    )

    @classmethod
    def of(cls, requests: Requests) -> "Sources":
        """All at their first request."""
        cursor = requests.first_of_source[:-1].copy()
        return cls(cursor, np.full(cursor.size, -1, dtype=np.int64))


def rules_of(spec: DramSpec) -> DramRules:
    """The numbers of a Spec as the compiled step takes them."""
    timing = spec.timing
    return DramRules(
        groups=spec.bank_groups,
        banks_per_group=spec.banks_per_group,
        bank_depth=spec.bank_queue_depth,
        transaction_depth=spec.transaction_queue_depth,
        row_hit_limit=spec.row_hit_limit,
        two_buses=spec.two_command_buses,
        activate_to_column=timing.activate_to_column,
        precharge_to_activate=timing.precharge_to_activate,
        activate_to_precharge=timing.activate_to_precharge,
        activate_to_activate=timing.activate_to_precharge + timing.precharge_to_activate,
        activate_same_group=timing.activate_to_activate_same_group,
        activate_other_group=timing.activate_to_activate_other_group,
        four_activates=timing.four_activates,
        column_same_group=max(timing.burst_cycles, timing.column_to_column_same_group),
        column_other_group=max(timing.burst_cycles, timing.column_to_column_other_group),
        read_to_write=max(1, timing.read_latency + timing.burst_cycles - timing.write_latency + timing.bus_turnaround),
        write_to_read_same_group=timing.write_latency + timing.burst_cycles + timing.write_to_read_same_group,
        write_to_read_other_group=timing.write_latency + timing.burst_cycles + timing.write_to_read_other_group,
        read_to_precharge=timing.read_to_precharge,
        write_to_precharge=timing.write_latency + timing.burst_cycles + timing.write_recovery,
        read_done=timing.read_latency + timing.burst_cycles,
        write_done=timing.write_latency + timing.burst_cycles,
        refresh=timing.refresh,
        refresh_interval=timing.refresh_interval,
    )


def empty_state(spec: DramSpec) -> DramState:
    """All banks closed, all queues empty."""
    channels, banks, depth = spec.channels, spec.banks, spec.transaction_queue_depth

    def zeros(*shape: int) -> Int64s:
        return np.zeros((channels, *shape), dtype=np.int64)

    return DramState(
        open_row=np.full((channels, banks), -1, dtype=np.int64),
        hits=zeros(banks),
        activate_ready=zeros(banks),
        precharge_ready=zeros(banks),
        column_ready=zeros(banks),
        group_activate_ready=zeros(spec.bank_groups + 1),
        group_read_ready=zeros(spec.bank_groups + 1),
        group_write_ready=zeros(spec.bank_groups + 1),
        activates=np.full((channels, 4), LONG_AGO, dtype=np.int64),
        next_activate=zeros(),
        open_banks=zeros(),
        bank_queue=zeros(banks, spec.bank_queue_depth, 3),
        bank_count=zeros(banks),
        reads=zeros(depth, 4),
        read_count=zeros(),
        writes=zeros(depth, 4),
        write_count=zeros(),
        draining=zeros(),
        turn=zeros(),
        refresh_wanted=zeros(),
        waiting=zeros(),
        counts=zeros(COUNTERS),
        column_from=zeros(),
        row_from=zeros(),
        hand_over=zeros(),
        queue_changes=zeros(),
    )
