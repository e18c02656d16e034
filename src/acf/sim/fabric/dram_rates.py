"""The rate at which DRAM serves one product: its own address stream, played on `acf.sim.dram` under full load.

A long stream is played in windows, each of which keeps the order of its bursts; what they take per burst on average is
charged to every burst. Windows are shorter than a refresh interval, so refresh is left out of them and its share of
time is charged on top. `tests/sim/fabric/test_timed_memory.py` compares products with every burst simulated.
"""

from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from acf.sim.dram import DramRun, DramSpec, locate, simulate_requests
from acf.sim.fabric.dram_streams import DramStream, Sent

Int64s = NDArray[np.int64]

WINDOWS, WINDOW_BURSTS = 8, 4096
NO_REFRESH = 1 << 40
"""A refresh interval, in cycles, that no window reaches."""


def ns_per_burst(spec: DramSpec, stream: DramStream, sent: Sent) -> float:
    """Nanoseconds of a channel for a burst of ``stream`` when controllers ask as early as they can; 0: no bursts."""
    address, is_write, source = _all_bursts(stream, sent)
    chosen = _windows(address.size)
    if not chosen.size:
        return 0.0
    timing = replace(spec.timing, refresh_interval=NO_REFRESH)
    run = simulate_requests(
        replace(spec, timing=timing),
        np.zeros(chosen.size),
        address[chosen] * spec.burst_bytes,
        is_write[chosen],
        source[chosen],
    )
    channel = locate(spec, address[chosen] * spec.burst_bytes).channel
    busy = _busy_cycles(channel, run, idle_read_cycles(spec) - spec.timing.burst_cycles)
    refresh_share = spec.timing.refresh / spec.timing.refresh_interval
    return busy * spec.cycle_ns / (1 - refresh_share) / chosen.size


def _busy_cycles(channel: Int64s, run: DramRun, latency: int) -> int:
    """Cycles in which channels have work, over all of them: what they idle while others work is not theirs.

    From the acceptance of a burst on, a channel is busy until all that it has accepted is complete. The ``latency`` of
    the first burst of such a period is no service.
    """
    order = np.lexsort((run.accepted_cycle, channel))
    of, accepted = channel[order], run.accepted_cycle[order]
    offset = of * (int(run.completion_cycle.max()) + 1)  # one channel after the other on one time line
    done = np.maximum.accumulate(run.completion_cycle[order] + offset) - offset
    begins = np.ones(of.size, dtype=bool)
    begins[1:] = (of[1:] != of[:-1]) | (accepted[1:] > done[:-1])
    ends = np.append(begins[1:], True)
    return int((done[ends] - accepted[begins] - latency).sum())


@cache
def idle_read_cycles(spec: DramSpec) -> int:
    """Cycles of the memory clock of one read on an idle memory."""
    return int(simulate_requests(spec, [0], [0]).completion_cycle[0])


def _all_bursts(stream: DramStream, sent: Sent) -> tuple[Int64s, NDArray[np.bool_], Int64s]:
    """Number of the burst, direction and source of every access, in the order of sending; write-backs share a source.

    The write-backs of a packet come right after its reads.
    """
    sizes = np.stack((np.diff(stream.first)[sent.order], stream.write_counts[sent.order]), axis=1).reshape(-1)
    starts = np.stack((stream.first[:-1][sent.order], stream.write_starts[sent.order]), axis=1).reshape(-1)
    number = np.repeat(starts, sizes) + np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_write = np.repeat(np.arange(sizes.size) % 2 == 1, sizes)
    address = number.copy()
    address[~is_write] = stream.bursts[number[~is_write]]
    source = np.repeat(np.repeat(sent.line[sent.order].astype(np.int64), 2), sizes)
    source[is_write] = int(sent.line.max(initial=0)) + 1
    return address, is_write, source


def _windows(bursts: int) -> Int64s:
    """Which accesses are played: all of them, or evenly spaced windows."""
    if bursts <= WINDOWS * WINDOW_BURSTS:
        return np.arange(bursts)
    begins = np.linspace(0, bursts - WINDOW_BURSTS, WINDOWS).astype(np.int64)
    return (begins[:, None] + np.arange(WINDOW_BURSTS)).reshape(-1)
