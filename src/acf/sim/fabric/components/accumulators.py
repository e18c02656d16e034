"""Double-buffered accumulators: a cluster fills one bank while the results of the other drain."""

from typing import NamedTuple

import numpy as np

from acf.jit import inlined
from acf.sim.fabric.components.credit import NEVER
from acf.sim.fabric.components.line import hops
from acf.sim.fabric.traffic import Int64s, Timing, Traffic

BANKS = 2


class Banks(NamedTuple):
    """``free_at [clusters, banks]``: when each bank is next empty; ``[clusters]``: the bank that is ``filling``, and
    ``drained_at``, when the last results had left.
    """

    free_at: Int64s
    filling: Int64s
    drained_at: Int64s

    @classmethod
    def new(cls, clusters: int) -> "Banks":
        """Empty banks."""
        zeros = np.zeros((2, clusters), dtype=np.int64)
        return cls(free_at=np.zeros((clusters, BANKS), dtype=np.int64), filling=zeros[0], drained_at=zeros[1])


class Drains(NamedTuple):
    """Results on their way out, ``[clusters]``: the ``round`` that drains next or now; ``flits_left`` of it, -1 before
    it begins; ``until``, when it ends, `NEVER` while that is not known; and ``emptied``, the banks emptied so far.
    """

    round: Int64s
    flits_left: Int64s
    until: Int64s
    emptied: Int64s

    @classmethod
    def new(cls, clusters: int) -> "Drains":
        """Nothing to drain."""
        zeros = np.zeros((2, clusters), dtype=np.int64)
        return cls(
            round=zeros[0],
            flits_left=np.full(clusters, -1, dtype=np.int64),
            until=np.full(clusters, NEVER, dtype=np.int64),
            emptied=zeros[1],
        )


@inlined
def result_flits(traffic: Traffic, timing: Timing, number: int, cluster: int) -> int:
    """Flits of results that a cluster sends after a round; over ideal links they take no time."""
    return 0 if timing.ideal_links else int(traffic.round_flits[number, cluster])


@inlined
def sum_cycles(timing: Timing, flits: int) -> int:
    """Cycles of partial sums down a column: through all its routers, and adding flit by flit."""
    return timing.hop_cycles * timing.mesh_rows + flits * timing.sum_flit_cycles


@inlined
def at_edge(traffic: Traffic, timing: Timing, cluster: int, left: int) -> int:
    """When the last flit that left a cluster is at the edge of the mesh; partial sums already are."""
    return left if traffic.reduces else left + hops(timing, cluster % timing.mesh_columns)
