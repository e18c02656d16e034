"""DRAM as the event engine sees it: channels that all controllers share, booked in short intervals.

The engine visits packets by k-step and not by time, so a request may come to the memory after later ones. Each
interval of `INTERVAL_CYCLES` has so much service to give; a request takes what is left from its own cycle on.
"""

from typing import NamedTuple

import numpy as np

from acf.jit import inlined
from acf.sim.fabric.components.controller import Controllers, window_place
from acf.sim.fabric.traffic import FRACTION_BITS, MEMORY, Int64s, Timing, Traffic

INTERVAL_BITS = 5
INTERVAL_CYCLES = 1 << INTERVAL_BITS
CAPACITY = INTERVAL_CYCLES << FRACTION_BITS
"""Service of an interval in 1/65536 cycles."""


class SharedDram(NamedTuple):
    """``used [channels, intervals]``: service given away; ``skip``, as many: how far the next interval with service
    left lies ahead at least, 0: not known to be full; ``end [1]``: when the last write-back is done.
    """

    used: Int64s
    skip: Int64s
    end: Int64s

    @classmethod
    def new(cls, traffic: Traffic, timing: Timing) -> "SharedDram":
        """An idle memory, for as many cycles as the program takes if everything happens one after another."""
        load = traffic.load
        if not load.read_ticks.any() and not load.write_ticks.any():
            nothing = np.zeros((1, 1), dtype=np.int64)
            return cls(nothing, nothing, np.zeros(1, dtype=np.int64))
        work = int(traffic.item_cycles.sum(dtype=np.int64)) + 2 * int(traffic.flits.sum(dtype=np.int64))
        service = int(load.read_ticks.sum() + load.write_ticks.sum()) >> FRACTION_BITS
        drains = int(traffic.round_flits.sum(dtype=np.int64)) * max(timing.result_period, timing.sum_flit_cycles)
        packets = traffic.line.size + traffic.item_cycles.shape[0] + traffic.round_flits.size
        each = (
            timing.dram_cycles
            + timing.sram_cycles
            + 4 * timing.hop_cycles * (timing.mesh_rows + timing.mesh_columns + 1)
        )
        intervals = (work + service + drains + packets * (each + 1)) // INTERVAL_CYCLES + 2
        shape = (int(max(load.read_channel.max(), load.write_channel.max())) + 1, intervals)
        return cls(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64), np.zeros(1, dtype=np.int64))


@inlined
def book(dram: SharedDram, channel: int, time: int, ticks: int) -> int:
    """The cycle at which ``ticks`` of service of a channel that were asked for at ``time`` have been given."""
    used, skip = dram.used[channel], dram.skip[channel]
    interval, left = time >> INTERVAL_BITS, ticks
    last = used.size - 1
    while True:
        interval = min(interval, last)
        origin = interval
        while skip[interval] > 0 and interval < last:
            interval = min(last, interval + skip[interval])
        if interval > origin:
            skip[origin] = interval - origin
        given = min(left, CAPACITY - used[interval]) if interval < last else left
        used[interval] += given
        left -= given
        if left == 0:
            break
        skip[interval] = 1
        interval += 1
    served = (interval << INTERVAL_BITS) + ((used[interval] + (1 << FRACTION_BITS) - 1) >> FRACTION_BITS)
    return int(max(served, time + ((ticks + (1 << FRACTION_BITS) - 1) >> FRACTION_BITS)))


@inlined
def request_shared(
    traffic: Traffic, timing: Timing, controllers: Controllers, dram: SharedDram, packet: int, time: int
) -> None:
    """Ask the shared memory for a packet at ``time``."""
    ticks = traffic.load.read_ticks[packet]
    if ticks > 0:
        line, place = traffic.line[packet], window_place(traffic, timing, packet)
        controllers.ready_at[line, place] = (
            book(dram, traffic.load.read_channel[packet], time, ticks) + timing.dram_cycles
        )
        controllers.ready_reason[line, place] = MEMORY


@inlined
def write_back(traffic: Traffic, dram: SharedDram, packet: int, time: int) -> None:
    """Hand the memory the write-backs that make room when a packet has left at ``time``."""
    write_ticks = traffic.load.write_ticks[packet] if traffic.load.write_ticks.size > 0 else 0
    if write_ticks > 0:
        done = book(dram, traffic.load.write_channel[packet], time, write_ticks)
        dram.end[0] = max(dram.end[0], done)
