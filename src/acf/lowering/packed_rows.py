"""The zero pattern of a matrix, every row packed into 64-bit words."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from acf.trace.bits import BoolArray

WORD_BITS = 64
_ROWS_PER_FLUSH = 255  # the largest count of a byte


def _spread() -> NDArray[np.uint64]:
    """For every byte, its bits as the bytes of a word: adding such words counts eight columns at once (SWAR)."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return np.ascontiguousarray(bits).view(np.uint64).reshape(256)


_SPREAD = _spread()


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Rows of ``length`` bits in ``words``, uint64 ``[rows, ceil(length / 64) + 1]``, lowest bit first.

    Bits beyond ``length`` are 0; the extra word lets a reader take 64 bits from any position.

    >>> rows = PackedRows.from_bool(np.array([[True, False, True]]))
    >>> rows.nonzeros, rows.words.tolist()
    (2, [[5, 0]])
    """

    words: NDArray[np.uint64]
    length: int

    @classmethod
    def from_bool(cls, pattern: BoolArray) -> "PackedRows":
        """Pack a bool ``[rows, length]`` pattern."""
        return cls.from_bytes(np.packbits(pattern, axis=1, bitorder="little"), int(pattern.shape[1]))

    @classmethod
    def from_bytes(cls, rows: NDArray[np.uint8], length: int) -> "PackedRows":
        """Pack rows that are already bytes, lowest bit first: uint8 ``[rows, ceil(length / 8)]``."""
        words = -(-length // WORD_BITS) + 1
        padded = np.zeros((rows.shape[0], words * 8), dtype=np.uint8)
        padded[:, : rows.shape[1]] = rows
        return cls(padded.view("<u8").astype(np.uint64, copy=False), length)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.words.shape[0])

    @cached_property
    def nonzeros(self) -> int:
        """Number of set bits."""
        return int(np.bitwise_count(self.words).sum(dtype=np.int64))

    @property
    def zeros_share(self) -> float:
        """Zeros over all elements; 0 for an empty matrix."""
        return 1.0 - self.nonzeros / (self.rows * self.length) if self.rows * self.length else 0.0

    @cached_property
    def column_counts(self) -> NDArray[np.int64]:
        """Set bits of every column, int64 ``[length]``."""
        counts = np.zeros(self.words.shape[1] * WORD_BITS, dtype=np.int64)
        rows = self.words.view(np.uint8)
        for first in range(0, self.rows, _ROWS_PER_FLUSH):
            sums = _SPREAD[rows[first : first + _ROWS_PER_FLUSH]].sum(axis=0, dtype=np.uint64)
            counts += sums.view(np.uint8)
        return counts[: self.length]

    def to_bool(self) -> BoolArray:
        """The pattern as a bool ``[rows, length]`` array."""
        bits = np.unpackbits(self.words.view(np.uint8), axis=1, count=self.length, bitorder="little")
        return bits.view(np.bool_)
