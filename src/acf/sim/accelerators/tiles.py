"""The output tiles of matrix products, and their makespan on tensor cores."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.sim.accelerators.supply import Demand
from acf.sim.dispatch import makespan


@dataclass(frozen=True, eq=False)
class TileWork:
    """One product cut into tiles: cycles of every job, each done ``repeats`` times, and what happens in them.

    ``lost_slots`` are those within the tiles, by reason; ``energy_j`` is by component.
    """

    job_cycles: NDArray[np.int64]
    repeats: int
    dense_macs: int
    effectual_macs: int
    lost_slots: dict[str, int]
    energy_j: dict[str, float]
    demand: Demand

    @property
    def core_cycles(self) -> int:
        """Cycles of all cores together."""
        return int(self.job_cycles.sum()) * self.repeats


def pooled_cycles(works: Sequence[TileWork], cores: int) -> int:
    """Cycles until the tiles of all products are done, in order, each on the first free core."""
    if not works:
        return 0
    if len(works) == 1:
        (work,) = works
        if work.job_cycles.size and (work.job_cycles == work.job_cycles[0]).all():  # rounds of equal tiles
            return -(-work.job_cycles.size * work.repeats // cores) * int(work.job_cycles[0])
        return int(makespan(work.job_cycles, work.repeats, cores))
    return int(makespan(np.concatenate([np.repeat(work.job_cycles, work.repeats) for work in works]), 1, cores))
