"""Matrices that are read where they lie in memory, so that im2col copies nothing (implicit GEMM)."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from acf.runtime.arithmetic_kernels import copy_by_blocks, gather
from acf.runtime.numbers import Values

Offsets = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ImplicitMatrix:
    """A matrix ``[rows, columns]`` whose element ``(r, c)`` is ``memory[row_at[r] + column_at[c]]``.

    ``source``: the same matrix as an array, where there is one.
    """

    memory: Values
    row_at: Offsets
    column_at: Offsets
    source: Values | None = field(default=None, repr=False)

    @classmethod
    def of(cls, values: Values) -> "ImplicitMatrix":
        """An array in either memory order, without a copy; of one in neither, a row-major copy."""
        if values.flags.f_contiguous and not values.flags.c_contiguous:
            return cls.of(values.T).T
        values = np.ascontiguousarray(values)
        rows, columns = values.shape
        return cls(values.reshape(-1), np.arange(rows) * columns, np.arange(columns), values)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.row_at.size, self.column_at.size

    @property
    def T(self) -> "ImplicitMatrix":  # noqa: N802  # numpy's name
        """The transpose."""
        source = None if self.source is None else self.source.T
        return ImplicitMatrix(self.memory, self.column_at, self.row_at, source)

    def values(self) -> Values:
        """The matrix as a row-major array, copied unless it lies in memory like that."""
        if self.source is not None and self.source.flags.c_contiguous:
            return self.source
        values = np.empty(self.shape, dtype=self.memory.dtype)
        if self.source is None:
            gather(self.memory, self.row_at, self.column_at, values)
        else:
            copy_by_blocks(self.source, values)
        return values


def add_offsets(*parts: Offsets) -> Offsets:
    """Offsets of nested axes, outermost first, as one vector: all sums of one entry of each.

    >>> add_offsets(np.array([0, 100]), np.array([0, 1, 2])).tolist()
    [0, 1, 2, 100, 101, 102]
    """
    total = np.zeros(1, dtype=np.int64)
    for part in parts:
        total = (total[:, None] + part).reshape(-1)
    return total
