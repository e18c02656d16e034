"""An operand cut into square tiles, and the non-zeros of each."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
from acf.lowering.packed_rows import PackedRows

_WORDS: dict[int, type[np.unsignedinteger]] = {8: np.uint8, 16: np.uint16, 32: np.uint32}


@dataclass(frozen=True, eq=False)
class TiledRows:
    """Rows packed along the reduction, in tiles of ``tile`` rows x ``tile`` elements of the reduction.

    ``patterns``: unsigned ``[rows, k_tiles]``, the zero pattern of every row of every tile, lowest bit first.
    """

    patterns: NDArray[np.unsignedinteger]
    tile: int

    @classmethod
    def of(cls, rows: PackedRows, tile: int) -> "TiledRows":
        """Cut packed rows into tiles."""
        k_tiles = -(-rows.length // tile)
        return cls(np.ascontiguousarray(rows.words.view(_WORDS[tile])[:, :k_tiles]), tile)

    @property
    def rows(self) -> int:
        """Rows of the operand."""
        return int(self.patterns.shape[0])

    @property
    def k_tiles(self) -> int:
        """Tiles along the reduction."""
        return int(self.patterns.shape[1])

    @property
    def tiles(self) -> int:
        """Tiles along the rows; the last one may be short."""
        return -(-self.rows // self.tile)

    @cached_property
    def widths(self) -> NDArray[np.int64]:
        """Rows of every tile, int64 ``[tiles]``."""
        widths = np.full(self.tiles, self.tile, dtype=np.int64)
        if self.rows % self.tile:
            widths[-1] = self.rows % self.tile
        return widths

    @cached_property
    def row_nonzeros(self) -> NDArray[np.uint8]:
        """Non-zeros of every row within every tile, uint8 ``[rows, k_tiles]``."""
        counts: NDArray[np.uint8] = np.bitwise_count(self.patterns)
        return counts

    @cached_property
    def depth_nonzeros(self) -> NDArray[np.uint8]:
        """Non-zeros of every tile at every depth of the reduction, uint8 ``[tiles, k_tiles, tile]``."""
        return _count_by_depth(self.patterns, self.tile)

    @cached_property
    def tile_nonzeros(self) -> NDArray[np.int64]:
        """Non-zeros of every tile, int64 ``[tiles, k_tiles]``; 0 marks a tile that is absent."""
        if not self.rows:
            return np.zeros((0, self.k_tiles), dtype=np.int64)
        return np.add.reduceat(self.row_nonzeros, np.arange(0, self.rows, self.tile), axis=0, dtype=np.int64)

    @cached_property
    def nonzeros(self) -> int:
        """Non-zeros of the whole operand."""
        return int(self.tile_nonzeros.sum())


@compiled
def _count_by_depth(patterns: NDArray[np.unsignedinteger], tile: int) -> NDArray[np.uint8]:
    rows, k_tiles = patterns.shape
    counts = np.zeros((-(-rows // tile), k_tiles, tile), dtype=np.uint8)
    for row in range(rows):
        for k_tile in range(k_tiles):
            bits = np.uint64(patterns[row, k_tile])
            depth = 0
            while bits:
                counts[row // tile, k_tile, depth] += np.uint8(bits & np.uint64(1))
                bits >>= np.uint64(1)
                depth += 1
    return counts


def tiles_any(pattern: NDArray[np.bool_], tile: int) -> NDArray[np.bool_]:
    """Which ``tile`` x ``tile`` tiles of ``pattern`` hold a True, bool ``[row tiles, column tiles]``."""
    rows, columns = pattern.shape
    padded = np.pad(pattern, ((0, -rows % tile), (0, -columns % tile)))
    tiles = padded.reshape(padded.shape[0] // tile, tile, padded.shape[1] // tile, tile)
    return np.asarray(tiles.any(axis=(1, 3)))
