"""Credits: how a controller knows the free places in a store of a cluster, its queue or its parallel tiles."""

from typing import NamedTuple

import numpy as np

from acf.jit import inlined
from acf.sim.fabric.traffic import Int64s

NEVER = 1 << 62
"""A cycle that does not come: what has not happened yet."""


class Credits(NamedTuple):
    """One credit for every place of a store. ``[clusters]``: credits ``taken`` and ``returned`` so far.

    ``back_at [clusters, places]``: the cycle at which a returned credit reaches its controller, a ring.
    """

    taken: Int64s
    returned: Int64s
    back_at: Int64s

    @classmethod
    def new(cls, clusters: int, places: int) -> "Credits":
        """All credits with the controllers."""
        counts = np.zeros((2, clusters), dtype=np.int64)
        return cls(taken=counts[0], returned=counts[1], back_at=np.zeros((clusters, places), dtype=np.int64))


@inlined
def credit_at(credits: Credits, cluster: int) -> int:
    """The cycle at which the controller has a credit for the next tile; `NEVER` while none is on its way back."""
    taken, places = credits.taken[cluster], credits.back_at.shape[1]
    if taken < places:
        return 0
    if taken - places >= credits.returned[cluster]:
        return NEVER
    return int(credits.back_at[cluster, taken % places])


@inlined
def give_back(credits: Credits, cluster: int, time: int) -> None:
    """Return a credit, which reaches the controller at ``time``."""
    credits.back_at[cluster, credits.returned[cluster] % credits.back_at.shape[1]] = time
    credits.returned[cluster] += 1
