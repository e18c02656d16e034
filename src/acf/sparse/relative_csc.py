"""Compressed sparse columns (CSC) with relative row indices of a few bits.

An entry stores the number of zeros before it. A gap too long for the index is bridged by padding: stored zeros, which
take space and time like any other entry.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.errors import SparsityError

MAXIMUM_INDEX_BITS = 16
_ELEMENTS_AT_ONCE = 1 << 22  # bounds the memory of the non-zeros' positions


@dataclass(frozen=True, eq=False)
class RelativeCsc:
    """``values [entries]``, the zeros before each, ``skips [entries]``, and column ``starts [columns + 1]``.

    ``length`` is the number of rows of every column, ``index_bits`` the width of a skip.
    """

    values: NDArray[np.float64]
    skips: NDArray[np.int64]
    starts: NDArray[np.int64]
    length: int
    index_bits: int

    @property
    def padding(self) -> int:
        """Entries that hold a zero only to bridge a gap."""
        return int((self.values == 0).sum())

    def decode(self) -> NDArray[np.float64]:
        """The dense columns again: float64 ``[columns, length]``."""
        counts = np.diff(self.starts)
        reached = np.concatenate(([0], np.cumsum(self.skips + 1)))
        rows = reached[1:] - 1 - np.repeat(reached[self.starts[:-1]], counts)
        dense = np.zeros((counts.size, self.length))
        dense[np.repeat(np.arange(counts.size), counts), rows] = self.values
        return dense


def encode_columns(columns: NDArray[np.float64], index_bits: int) -> RelativeCsc:
    """Encode ``[columns, length]``; zeros at the end of a column are not stored.

    >>> encoded = encode_columns(np.array([[0.0, 5.0, 0.0, 0.0, 7.0, 0.0]]), index_bits=1)
    >>> encoded.values.tolist(), encoded.skips.tolist()
    ([5.0, 0.0, 7.0], [1, 1, 0])
    """
    _check_bits(index_bits)
    column, row = np.nonzero(columns)
    gaps = _gaps(column, row)
    padding = gaps >> index_bits
    last = np.cumsum(padding + 1) - 1
    entries = int(last[-1]) + 1 if last.size else 0
    values, skips = np.zeros(entries), np.full(entries, (1 << index_bits) - 1, dtype=np.int64)
    values[last] = columns[column, row]
    skips[last] = gaps & ((1 << index_bits) - 1)
    counts = np.bincount(column, weights=padding + 1, minlength=columns.shape[0]).astype(np.int64)
    return RelativeCsc(values, skips, np.concatenate(([0], np.cumsum(counts))), columns.shape[1], index_bits)


def count_entries(pattern: NDArray[np.bool_], index_bits: int) -> int:
    """Entries of a bool ``[columns, length]`` pattern when encoded, padding included, without encoding it."""
    _check_bits(index_bits)
    nonzeros = int(pattern.sum())
    columns, length = pattern.shape
    if length <= 1 << index_bits:
        return nonzeros  # no gap is too long
    step = max(1, _ELEMENTS_AT_ONCE // length)
    parts = (_gaps(*np.nonzero(pattern[first : first + step])) for first in range(0, columns, step))
    return nonzeros + sum(int((gaps >> index_bits).sum()) for gaps in parts)


def _gaps(column: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Zeros before each non-zero since the last one of its column, given in order."""
    before = np.concatenate(([-1], row[:-1]))
    before[1:][column[1:] != column[:-1]] = -1
    return row - before[: row.size] - 1


def _check_bits(index_bits: int) -> None:
    if not 1 <= index_bits <= MAXIMUM_INDEX_BITS:
        raise SparsityError(
            f"index_bits {index_bits} is not within 1 to {MAXIMUM_INDEX_BITS}; give the bits of a relative index"
        )
