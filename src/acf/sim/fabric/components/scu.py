"""Sparse compute units (SCUs): what each works on, and what it did with every cycle."""

from typing import NamedTuple

import numpy as np

from acf.jit import inlined
from acf.sim.fabric.traffic import DRAIN, IMBALANCE, MEMORY, SCAN, WORK, Int64s


class Scus(NamedTuple):
    """``busy_until`` and ``started``, the serial tiles begun so far: ``[clusters, scus]``.

    ``cycles [clusters * scus, reasons]`` accounts for every cycle by `acf.sim.fabric.traffic.REASONS`.
    """

    busy_until: Int64s
    started: Int64s
    cycles: Int64s

    @classmethod
    def new(cls, clusters: int, scus: int, cycles: Int64s) -> "Scus":
        """Idle SCUs that account in ``cycles``."""
        zeros = np.zeros((2, clusters, scus), dtype=np.int64)
        return cls(busy_until=zeros[0], started=zeros[1], cycles=cycles)


@inlined
def begin_tile(scus: Scus, cluster: int, scu: int, start: int, waited_for: int, work: int) -> int:
    """Begin a serial tile of ``work`` cycles at ``start``; a tile without work takes one. Returns when it ends."""
    who = cluster * scus.busy_until.shape[1] + scu
    cost = max(1, work)
    scus.cycles[who, waited_for] += start - scus.busy_until[cluster, scu]
    scus.cycles[who, WORK if work else SCAN] += cost
    scus.busy_until[cluster, scu] = start + cost
    scus.started[cluster, scu] += 1
    return start + cost


@inlined
def close_accounts(scus: Scus, end: int) -> int:
    """Charge the wait for the last SCU and for the last results; returns the cycles of the program."""
    per_cluster, latest = scus.busy_until.shape[1], 0
    for who in range(scus.cycles.shape[0]):
        latest = max(latest, scus.busy_until[who // per_cluster, who % per_cluster])
    end = max(end, latest)
    for who in range(scus.cycles.shape[0]):
        scus.cycles[who, IMBALANCE] += latest - scus.busy_until[who // per_cluster, who % per_cluster]
        scus.cycles[who, DRAIN] += end - latest
    return int(end)


@inlined
def wait_for_memory(scus: Scus, end: int, memory_end: int) -> int:
    """Charge the wait for the last write-backs; returns the cycles of the program with them."""
    if memory_end <= end:
        return end
    for who in range(scus.cycles.shape[0]):
        scus.cycles[who, MEMORY] += memory_end - end
    return memory_end
