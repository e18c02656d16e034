"""Clusters: which tiles are there or in flight to them, and how far they are with them."""

from typing import NamedTuple

import numpy as np

from acf.jit import inlined
from acf.sim.fabric.components.credit import NEVER
from acf.sim.fabric.traffic import FILL, Int64s


class LatestTiles(NamedTuple):
    """What later events of a cluster depend on, ``[clusters]``: for the engine that visits packets in order.

    ``parallel_at``, ``parallel_reason``: arrival of the last parallel tile, and what it waited for; ``done_at``: when
    the last serial tile was done; ``serial_in_round``: serial tiles of the current round so far.
    """

    parallel_at: Int64s
    parallel_reason: Int64s
    done_at: Int64s
    serial_in_round: Int64s

    @classmethod
    def new(cls, clusters: int) -> "LatestTiles":
        """Clusters that nothing has reached yet."""
        zeros = np.zeros((3, clusters), dtype=np.int64)
        return cls(
            parallel_at=zeros[0],
            parallel_reason=np.full(clusters, FILL, dtype=np.int64),
            done_at=zeros[1],
            serial_in_round=zeros[2],
        )


class Arrivals(NamedTuple):
    """Tiles of one kind in the order of sending: ``sent [clusters]``, and ``at`` and ``reason [clusters, tiles]``.

    ``at`` is the cycle of arrival, `NEVER` before the tile is sent; ``reason`` is what it waited for last.
    """

    sent: Int64s
    at: Int64s
    reason: Int64s

    @classmethod
    def new(cls, clusters: int, tiles: int) -> "Arrivals":
        """No tile sent."""
        return cls(
            sent=np.zeros(clusters, dtype=np.int64),
            at=np.full((clusters, tiles), NEVER, dtype=np.int64),
            reason=np.zeros((clusters, tiles), dtype=np.int64),
        )


class Progress(NamedTuple):
    """What a cluster has finished, ``[clusters]``: serial tiles, parallel tiles no longer needed, the last round."""

    serial_done: Int64s
    parallel_freed: Int64s
    rounds_done: Int64s

    @classmethod
    def new(cls, clusters: int) -> "Progress":
        """Nothing finished."""
        zeros = np.zeros((2, clusters), dtype=np.int64)
        return cls(serial_done=zeros[0], parallel_freed=zeros[1], rounds_done=np.full(clusters, -1, dtype=np.int64))


@inlined
def expect(arrivals: Arrivals, cluster: int, arrival: int, reason: int) -> None:
    """A tile is in flight to a cluster."""
    number = arrivals.sent[cluster]
    arrivals.at[cluster, number], arrivals.reason[cluster, number] = arrival, reason
    arrivals.sent[cluster] += 1


@inlined
def first_reason(arrivals: Arrivals, cluster: int, number: int) -> int:
    """The reason of the first of the tiles that arrived in the same cycle as tile ``number``."""
    while number > 0 and arrivals.at[cluster, number - 1] == arrivals.at[cluster, number]:
        number -= 1
    return int(arrivals.reason[cluster, number])
