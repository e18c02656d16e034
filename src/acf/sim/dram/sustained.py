"""Bandwidth that long streams of equal runs sustain: measured once per run length on the exact model, then cached."""

from dataclasses import dataclass
from functools import cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from acf.errors import ArchitectureError
from acf.sim.dram.simulate import simulate_requests
from acf.sim.dram.spec import DramSpec

MEASURED_BURSTS = 131072
"""Bursts that are played to measure one run length: two seeds then differ by less than 2 %."""

LONGEST_RUN_BURSTS = 1024
"""Longer runs are charged as this one; from here on bandwidth no longer changes."""


@dataclass(frozen=True)
class SustainedRate:
    """Bandwidth, energy and latency of a stream of runs, with a request offered in every cycle."""

    bytes_per_s: float
    pj_per_bit: float
    row_hit_share: float
    read_latency_cycles: float


def sustained_bandwidth(spec: DramSpec, run_bytes: int, write_share: float = 0.0) -> float:
    """Bytes per second of useful data when runs of ``run_bytes`` are read (or written) at random places.

    >>> from acf.sim.dram.spec import MEMORIES
    >>> sustained_bandwidth(MEMORIES["hbm2"], 128) < 0.6 * sustained_bandwidth(MEMORIES["hbm2"], 512)
    True
    """
    bursts = _bursts(spec, run_bytes)
    useful = min(1.0, run_bytes / (ceil(run_bytes / spec.burst_bytes) * spec.burst_bytes))
    return useful * sustained_rate(spec, bursts, write_share).bytes_per_s


def energy_per_bit(spec: DramSpec, run_bytes: int, write_share: float = 0.0) -> float:
    """Picojoules per useful bit of the same stream, standby and refresh included."""
    bursts = _bursts(spec, run_bytes)
    useful = min(1.0, run_bytes / (ceil(run_bytes / spec.burst_bytes) * spec.burst_bytes))
    return sustained_rate(spec, bursts, write_share).pj_per_bit / useful


@cache
def sustained_rate(spec: DramSpec, run_bursts: int, write_share: float = 0.0) -> SustainedRate:
    """The stream of runs of ``run_bursts`` bursts, played on the cycle-exact model with a fixed seed."""
    address, is_write = random_runs(
        spec, run_bursts * spec.burst_bytes, MEASURED_BURSTS, seed=0, write_share=write_share
    )
    run = simulate_requests(spec, np.arange(address.size), address, is_write)
    reads = ~is_write
    latency = run.completion_cycle[reads] - run.accepted_cycle[reads]
    return SustainedRate(
        bytes_per_s=run.bytes_per_s,
        pj_per_bit=run.pj_per_bit,
        row_hit_share=run.row_hit_share,
        read_latency_cycles=float(latency.mean()) if latency.size else 0.0,
    )


def random_runs(
    spec: DramSpec, run_bytes: int, bursts: int, seed: int, write_share: float = 0.0
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Addresses of about ``bursts`` bursts in runs that start at random multiples of their length, and which write.

    That is how blocks of one size lie in memory. A run is read or written as a whole.
    """
    rng = np.random.default_rng(seed)
    bursts_per_run = ceil(run_bytes / spec.burst_bytes)
    length = bursts_per_run * spec.burst_bytes
    runs = max(1, bursts // bursts_per_run)
    starts = rng.integers(0, spec.capacity_bytes // length, runs) * length
    address = (starts[:, None] + np.arange(0, length, spec.burst_bytes)).reshape(-1)
    return address, np.repeat(rng.random(runs) < write_share, bursts_per_run)


def _bursts(spec: DramSpec, run_bytes: int) -> int:
    if run_bytes < 1:
        raise ArchitectureError(f"run_bytes {run_bytes} is less than 1; give the length of a run")
    return min(ceil(run_bytes / spec.burst_bytes), LONGEST_RUN_BURSTS)
