"""Lines: a controller's link into a mesh row or column, and the pipeline of routers along it."""

from typing import NamedTuple

import numpy as np

from acf.jit import inlined
from acf.sim.fabric.traffic import Int64s, Timing, Traffic


class Lines(NamedTuple):
    """``link_free [lines]``: the cycle at which the first link of each line is next free."""

    link_free: Int64s

    @classmethod
    def new(cls, traffic: Traffic) -> "Lines":
        """Links that have carried nothing yet."""
        return cls(link_free=np.zeros(traffic.first.size - 1, dtype=np.int64))


@inlined
def hops(timing: Timing, distance: int) -> int:
    """Cycles of a flit, or of a credit, between a controller and the router at ``distance``."""
    return timing.hop_cycles * (distance + 1)


@inlined
def arrival(traffic: Traffic, timing: Timing, packet: int, sent: int, distance: int) -> int:
    """The cycle at which the last flit of a packet is at the router at ``distance``."""
    return sent if timing.ideal_links else int(sent + traffic.flits[packet] + hops(timing, distance))


@inlined
def occupy_link(traffic: Traffic, timing: Timing, lines: Lines, packet: int, time: int) -> None:
    """Put a packet on the first link of its line, one flit per cycle; ideal links take any number at once."""
    lines.link_free[traffic.line[packet]] = time if timing.ideal_links else time + traffic.flits[packet]
