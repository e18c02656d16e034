"""What the buses of a device did in the cycles of a program."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BusProfile:
    """Cycles of a program by what its masters moved: beats of reads alone, of writes alone, of both, or nothing.

    ``idle_cycles`` lie between the first beat and the last; ``edge_cycles`` before the first, where the first commands
    are on their way, and after the last, where the device waits until its pipelines must be empty.
    """

    read_cycles: int
    write_cycles: int
    both_cycles: int
    idle_cycles: int
    edge_cycles: int

    @classmethod
    def of(cls, reading: NDArray[np.bool_], writing: NDArray[np.bool_], cycles: int) -> "BusProfile":
        """The profile of ``cycles``, out of whether any master read or wrote, in all cycles of a run."""
        moved = np.flatnonzero(reading | writing)
        span = int(moved[-1] - moved[0] + 1) if moved.size else 0
        both = int((reading & writing).sum())
        return cls(
            read_cycles=int(reading.sum()) - both,
            write_cycles=int(writing.sum()) - both,
            both_cycles=both,
            idle_cycles=span - moved.size,
            edge_cycles=cycles - span,
        )

    @classmethod
    def total_of(cls, profiles: Sequence["BusProfile"]) -> "BusProfile":
        """All profiles together."""
        return cls(*(sum(getattr(each, item.name) for each in profiles) for item in fields(cls)))

    def __str__(self) -> str:
        return (
            f"buses: {self.read_cycles} cycles read only, {self.write_cycles} write only, {self.both_cycles} both, "
            f"{self.idle_cycles} idle between, {self.edge_cycles} before the first beat and after the last"
        )
