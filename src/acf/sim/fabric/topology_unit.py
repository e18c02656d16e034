"""Cycles of the topology unit in gates (`acf.rtl.device.topology`): selection, index rebuild, and the blocks that move.

The unit reads and writes one flit at a time. What it writes goes word by word through a flit that is full for
``write_cycles``; a word that comes meanwhile waits. It moves as many blocks at once as its sorter has registers; more
take further updates, each of which scores all blocks anew.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.lowering import FabricShape
from acf.lowering.fabric_shape import SUM_BYTES, VALUE_BYTES

SORTER_MOVES = 64
"""Registers of the sorter: blocks that one update can move; assumption, in gates `WalkerOption(moves=...)`."""

MOVED_FRACTION = 0.3
"""Share of the present blocks that move at an update: the fraction with which `acf.BlockDST` begins."""

WORD_BYTES = 4
MASK_BITS = 32

Presence = NDArray[np.bool_]


@dataclass(frozen=True)
class TopologyUnit:
    """The unit of a fabric: words of a flit, flits of a block's scores, cycles of a flit that is read or written.

    ``block_flits``: of a block's weight, float32 weight and moments. ``read_cycles``: from a request to its flit;
    ``write_cycles``: those in which a flit waits for its writer.
    """

    flit_words: int
    score_flits: int
    block_flits: tuple[int, ...]
    read_cycles: int
    write_cycles: int

    @classmethod
    def of(cls, shape: FabricShape, write_cycles: int = 2) -> "TopologyUnit":
        """The unit of a fabric whose on-chip memory holds scores and index, behind an optimizer with one moment.

        A product does not tell which optimizer follows it; that of Adam has ``block_flits`` of two moments.
        """
        values, link = shape.tile**2, shape.link_bytes
        weight, wide = -(-VALUE_BYTES * values // link), -(-SUM_BYTES * values // link)
        return cls(
            link // WORD_BYTES,
            -(-SUM_BYTES * shape.tile // link),
            (weight, wide, wide),
            shape.sram_cycles,
            write_cycles,
        )

    def select_cycles(self, present: Presence, moves: int) -> int:
        """Read the slots of ``present [rows, columns]``, score and sort all blocks, move, check, write new slots."""
        blocks, kept = present.size, int(present.sum())
        scored = 2 + self.score_flits * (1 + self.read_cycles + self.flit_words)
        reads = blocks + -(-blocks // self.flit_words) * (1 + self.read_cycles)
        scores = blocks * scored + kept
        return 1 + reads + scores + 2 + 2 * moves + 2 * blocks + 1 + self._written(np.arange(blocks), blocks)

    def index_cycles(self, present: Presence) -> int:
        """Write offsets, slots and entries of a product with blocks ``present [k_tiles, columns]``."""
        lines, columns = present.shape
        offsets = np.arange(lines + 1) * (columns + 1)
        slots, entries = np.flatnonzero(present), np.arange(int(present.sum()))
        written = self._written(offsets, int(offsets[-1]) + 1) + self._written(slots, present.size)
        return written + self._written(entries, entries.size + 1)

    def words_cycles(self, words: int) -> int:
        """Write so many words one behind the other."""
        return self._written(np.arange(words), words)

    def mask_cycles(self, present: Presence) -> int:
        """Write the mask of an output-stationary weight gradient."""
        rows, columns = present.shape
        ends = np.unique(np.append(np.arange(MASK_BITS - 1, columns, MASK_BITS), columns - 1))
        words = (np.arange(rows)[:, None] * columns + ends).reshape(-1)
        return self._written(words, present.size)

    def list_cycles(self, present: Presence, round_tiles: int) -> int:
        """Write the output tiles of a split-K weight gradient, of which a round has ``round_tiles``.

        Marks are cleared, a cycle per column. A round takes one to begin; one per block from its first to its last
        present one to mark columns, one per column to number them, and again one per block, with one more for each
        present one, to write.
        """
        blocks, columns = np.flatnonzero(present), present.shape[1]
        places, now, begin = [], columns, 0
        for first in range(0, blocks.size, round_tiles):
            own = blocks[first : first + round_tiles] - begin
            now += 1 + int(own[-1]) + 1 + columns
            written = now + own + np.arange(own.size)
            places += [written, written + 1]
            now, begin = int(written[-1]) + 2, begin + int(own[-1]) + 1
        words = np.sort(np.concatenate(places)) if places else np.zeros(0, dtype=np.int64)
        return self._written(words, now)

    def move_cycles(self, moves: int) -> int:
        """Write the optimizer's descriptor and zeros of so many moved blocks."""
        zeros = sum(flits * (self.flit_words + self.write_cycles) + 1 for flits in self.block_flits)
        return moves * (2 * (1 + self.read_cycles) + self.flit_words + self.write_cycles + 2 + zeros)

    def _written(self, places: NDArray[np.int64], cycles: int) -> int:
        """States of so many ``cycles`` that write a word in those of ``places``, and the flit that is then sent off."""
        words, wait = self.flit_words, self.write_cycles
        first = np.arange(words, places.size, words)  # the first words of flits behind the first one
        waits = int(np.maximum(0, wait + 1 - (places[first] - places[first - 1])).sum())
        if not places.size:
            return cycles + 1
        if places.size % words:
            return cycles + waits + wait + 2
        return cycles + waits + 1 + max(0, wait - (cycles - 1 - int(places[-1])))


def moved_blocks(present: Presence) -> int:
    """Blocks of a layer that move at an update."""
    kept = int(present.sum())
    return min(round(MOVED_FRACTION * kept), present.size - kept)


def updates_of(moves: int) -> int:
    """Updates in which so many blocks move."""
    return -(-moves // SORTER_MOVES)
