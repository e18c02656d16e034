"""When things happened on the stepped fabric, for comparison with the gates."""

from typing import NamedTuple

import numpy as np

from acf.lowering import FabricShape, Program
from acf.sim.fabric.traffic import Int64s

NOT_YET = -1
"""This event has not happened."""


class EventLog(NamedTuple):
    """Cycles of events; `NOT_YET` where there was none. An empty log (no packets) records nothing.

    ``sent_at [packets]``; ``begun_at [row packets, mesh_columns, scus]``; by round and cluster ``first_left``,
    ``last_left`` (the first and last flit of results; of partial sums when they begin to move) and ``emptied_at``.
    """

    sent_at: Int64s
    begun_at: Int64s
    first_left: Int64s
    last_left: Int64s
    emptied_at: Int64s

    @classmethod
    def of(cls, program: Program, shape: FabricShape) -> "EventLog":
        """A log of ``program`` in which nothing has happened yet."""
        rounds = np.full((3, program.rounds, shape.clusters), NOT_YET, dtype=np.int64)
        begun = (program.rows.packets, shape.mesh_columns, shape.scus_per_cluster)
        return cls(
            sent_at=np.full(program.rows.packets + program.columns.packets, NOT_YET, dtype=np.int64),
            begun_at=np.full(begun, NOT_YET, dtype=np.int64),
            first_left=rounds[0],
            last_left=rounds[1],
            emptied_at=rounds[2],
        )

    @classmethod
    def off(cls) -> "EventLog":
        """A log that records nothing."""
        rounds = np.zeros((3, 0, 0), dtype=np.int64)
        begun = np.zeros((0, 0, 0), dtype=np.int64)
        return cls(np.zeros(0, dtype=np.int64), begun, rounds[0], rounds[1], rounds[2])
