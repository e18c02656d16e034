"""SAT's sparse online reduction engine: the largest N of every M values, sorted as they stream in."""

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from acf.errors import SparsityError


@dataclass(frozen=True, eq=False)
class Reduction:
    """``values`` and ``indices`` within their group, both ``[groups, kept]``, largest magnitude first; ``cycles``."""

    values: NDArray[np.float64]
    indices: NDArray[np.int64]
    cycles: int


def reduction_cycles(groups: int, group_size: int, lanes: int) -> int:
    """Cycles for ``groups``: every lane takes one value per cycle, so one group every ``group_size`` cycles."""
    return ceil(groups / lanes) * group_size


def reduce_groups(values: NDArray[np.float64], kept: int, group_size: int, lanes: int = 32) -> Reduction:
    """Keep the ``kept`` largest magnitudes of every ``group_size`` consecutive values, as a lane's sorter does.

    A value enters before the first smaller register and pushes the rest down; of equal magnitudes the earlier stays
    ahead.

    >>> reduced = reduce_groups(np.array([1.0, -4.0, 3.0, 0.5]), kept=2, group_size=4)
    >>> reduced.values.tolist(), reduced.indices.tolist(), reduced.cycles
    ([[-4.0, 3.0]], [[1, 2]], 4)
    """
    if not 1 <= kept <= group_size:
        raise SparsityError(f"{kept} of {group_size} cannot be kept; keep at least 1 and at most the whole group")
    if values.size % group_size:
        raise SparsityError(
            f"group_size {group_size} does not divide {values.size} values; use a size that does, or leave them dense"
        )
    groups = values.reshape(-1, group_size)
    registers = np.zeros((len(groups), kept))
    indices = np.zeros((len(groups), kept), dtype=np.int64)
    magnitudes = np.full((len(groups), kept), -1.0)  # below any value: a register that is still free
    for cycle in range(group_size):
        value = groups[:, cycle]
        rank = (magnitudes >= np.abs(value)[:, None]).sum(axis=1)
        _insert(magnitudes, rank, np.abs(value))
        _insert(registers, rank, value)
        _insert(indices, rank, np.full(len(groups), cycle))
    return Reduction(registers, indices, reduction_cycles(len(groups), group_size, lanes))


def _insert(registers: NDArray[np.generic], rank: NDArray[np.int64], entering: NDArray[np.generic]) -> None:
    """Put ``entering [groups]`` at ``rank`` of every row and push what follows down by one; the last falls out."""
    for slot in range(registers.shape[1] - 1, -1, -1):
        if slot:
            registers[:, slot] = np.where(rank < slot, registers[:, slot - 1], registers[:, slot])
        registers[:, slot] = np.where(rank == slot, entering, registers[:, slot])
