"""What the event engine can write down while it runs: states of sampled SCUs, packets on links, totals over time."""

from typing import NamedTuple

import numpy as np

from acf.jit import compiled, inlined
from acf.sim.fabric.components.scu import Scus
from acf.sim.fabric.traffic import DRAIN, FILL, FRACTION_BITS, SCAN, WORK, Int64s, Timing, Traffic

NO_TRACK = -1
"""This SCU is not sampled."""


class Recorder(NamedTuple):
    """Arrays that the compiled loop writes; cycles count from the start of the program.

    ``track [scus]``: the track of every SCU, `NO_TRACK` where it is not sampled; ``latest [tracks]``: the row of
    ``states`` that was written last for it. ``states [limit, 5]``: track, reason, start, end and tiles of what a
    sampled SCU did. ``sends [limit, 8]``: line, packet, cycle since which the link was free, cycle of sending, reason
    of the wait between the two, start and end of the DRAM transfer in 1/65536 cycles (0, 0: on chip) and its channel.
    ``counts [3]``: rows of both so far, and at the end the cycle at which the last results were at the edge;
    ``cut [1]``: the earliest start that found no room.

    Totals over bins of ``bin_cycles [1]`` each (0: nothing is recorded): ``busy [bins, clusters]``, SCU cycles of
    work, and ``carried [bins, lines]``, cycles in which the first link of a line carries a flit. ``seen_until [scus]``
    and ``seen_cycles [scus, reasons]``: the accounts of the SCUs before the current packet.
    """

    track: Int64s
    latest: Int64s
    states: Int64s
    sends: Int64s
    counts: Int64s
    cut: Int64s
    bin_cycles: Int64s
    busy: Int64s
    carried: Int64s
    seen_until: Int64s
    seen_cycles: Int64s

    @classmethod
    def off(cls) -> "Recorder":
        """A recorder that records nothing."""
        none, empty = np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.int64)
        zero = np.zeros(1, dtype=np.int64)
        return cls(none, none, empty, empty, zero, zero, zero, empty, empty, none, empty)


@inlined
def is_on(recorder: Recorder) -> bool:
    """Whether anything is recorded."""
    return bool(recorder.bin_cycles[0] > 0)


@compiled
def record_send(
    traffic: Traffic,
    timing: Timing,
    recorder: Recorder,
    packet: int,
    ready: int,
    free: int,
    sent: int,
    reason: int,
) -> None:
    """A packet on the first link of its line, and its DRAM transfer."""
    line = traffic.line[packet]
    if not timing.ideal_links:
        add_to_bins(recorder.carried, recorder.bin_cycles[0], line, sent, sent + traffic.flits[packet])
    row = recorder.counts[1]
    if row == recorder.sends.shape[0]:
        recorder.cut[0] = min(recorder.cut[0], sent)
    else:
        values = recorder.sends[row]
        values[0], values[1], values[2], values[3], values[4] = line, packet, min(free, sent), sent, reason
        ticks, channel = traffic.dram_ticks[packet], line
        if traffic.load.read_ticks.size > 0:
            ticks, channel = traffic.load.read_ticks[packet], traffic.load.read_channel[packet]
        if ticks > 0:
            dram_end = (ready - timing.dram_cycles) << FRACTION_BITS
            values[5], values[6], values[7] = max(0, dram_end - ticks), dram_end, channel
        recorder.counts[1] += 1


@compiled
def record_tiles(traffic: Traffic, scus: Scus, recorder: Recorder, packet: int) -> None:
    """The serial tile that SCUs have just been given: their wait before it, and the work."""
    per_cluster = scus.busy_until.shape[1]
    item = traffic.item_first[packet]
    for copy in range(traffic.copy_first[packet], traffic.copy_first[packet + 1]):
        cluster = traffic.copy_cluster[copy]
        for scu in range(per_cluster):
            who, end, work = cluster * per_cluster + scu, scus.busy_until[cluster, scu], traffic.item_cycles[item, scu]
            start = end - max(1, work)
            if work:
                add_to_bins(recorder.busy, recorder.bin_cycles[0], cluster, start, end)
            if recorder.track[who] != NO_TRACK:
                if start > recorder.seen_until[who]:
                    reason = waited_for(scus, recorder, who)
                    add_state(recorder, recorder.track[who], reason, recorder.seen_until[who], start, 0)
                add_state(recorder, recorder.track[who], WORK if work else SCAN, start, end, 1)
                for reason in range(scus.cycles.shape[1]):
                    recorder.seen_cycles[who, reason] = scus.cycles[who, reason]
            recorder.seen_until[who] = end
        item += 1


@compiled
def waited_for(scus: Scus, recorder: Recorder, who: int) -> int:
    """The reason to which the engine has charged the latest wait of an SCU."""
    for reason in range(FILL, DRAIN + 1):
        if scus.cycles[who, reason] != recorder.seen_cycles[who, reason]:
            return reason
    return FILL


@compiled
def add_state(recorder: Recorder, track: int, reason: int, start: int, end: int, tiles: int) -> None:
    """Add to the states of a track; one that continues the state before it makes that longer."""
    last = recorder.latest[track]
    if last >= 0 and recorder.states[last, 1] == reason and recorder.states[last, 3] == start:
        recorder.states[last, 3] = end
        recorder.states[last, 4] += tiles
        return
    row = recorder.counts[0]
    if row == recorder.states.shape[0]:
        recorder.cut[0] = min(recorder.cut[0], start)
        return
    values = recorder.states[row]
    values[0], values[1], values[2], values[3], values[4] = track, reason, start, end, tiles
    recorder.latest[track] = row
    recorder.counts[0] += 1


@compiled
def add_to_bins(totals: Int64s, bin_cycles: int, column: int, start: int, end: int) -> None:
    """Add the cycles from ``start`` to ``end`` to the bins they lie in; what is after the last bin counts there."""
    while start < end:
        number = min(start // bin_cycles, totals.shape[0] - 1)
        stop = end if number == totals.shape[0] - 1 else min(end, (number + 1) * bin_cycles)
        totals[number, column] += stop - start
        start = stop
