"""Cycles in which an index controller walks an output-stationary product, as the gates take them (`controller_cycles`).

A round is walked twice: the first pass looks from its end for the last k_step of every cluster, the second makes
commands. Controllers that share a product all visit every block and read the counts of every part; each sends the
serial tiles of its own mesh rows. Owners are stored. With a mask, the bits of a round's output tiles are read before
it, and sizes in place of counts.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.lowering import FabricShape
from acf.lowering.descriptor import DESCRIPTOR_WORDS
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.product_index import SIZES_PER_WORD, deal_batches, order_steps
from acf.lowering.tiled_product import TiledProduct

VISIT_CYCLES = 3
"""A block that is visited: its slot, its entry, and a cycle in which it is noted or sent."""
WALK_CYCLES = 3
"""A k_tile's offsets, before its first block."""


@dataclass(frozen=True, eq=False)
class OutputStationaryWalk:
    """``set_up``: cycles until the first command may follow; ``common``: all that every controller takes.

    ``parts [parts]``: cycles of the serial tiles of every part, taken by the controller that has its mesh row.
    ``read_words``: words of the index that each controller reads, ``part_words`` those that the owner of a row reads.
    """

    set_up: int
    common: int
    parts: NDArray[np.int64]
    read_words: int
    part_words: int

    def cycles(self, number: int, controllers: int, shape: FabricShape) -> int:
        """Those of controller ``number`` of so many that share the mesh rows."""
        groups = len(self.parts) // shape.mesh_rows
        rows = np.arange(len(self.parts)) // groups
        return self.common + int(self.parts[rows % controllers == number].sum())


def output_stationary_walk(
    mapping: OutputStationaryMapping, product: TiledProduct, shape: FabricShape
) -> OutputStationaryWalk:
    """The walk of ``product`` under ``mapping``."""
    return _Walk(mapping, product, shape).count()


class _Walk:
    def __init__(self, mapping: OutputStationaryMapping, product: TiledProduct, shape: FabricShape) -> None:
        self.mapping, self.product = mapping, product
        self.parts = mapping.row_parts(shape)
        self.groups = shape.mesh_columns // mapping.group_columns
        dealt = deal_batches(product, mapping, shape)
        self.has = dealt.nonzeros > 0
        self.row_rounds, self.row_tiles = self.has.shape[0], self.has.shape[3]
        self.columns, self.blocks = product.parallel.tiles, int(product.present.sum())
        self.masked = product.needed is not None
        words = -(-self.row_tiles // SIZES_PER_WORD) if self.masked else 1
        self.scan = 3 + self.parts * words

    def count(self) -> OutputStationaryWalk:
        cleared = self.columns if self.masked else self.mapping.column_rounds
        begin = DESCRIPTOR_WORDS + 2 + self.blocks + 2 + cleared + self.columns + 2
        steps, orders = order_steps(self.mapping, self.product)
        visited = self.product.present.sum(axis=0, dtype=np.int64)
        common, first, read, parts, part_words = begin, 0, 0, np.zeros(self.parts, dtype=np.int64), 0
        for number, order in enumerate(orders):
            k_tiles, mine = order[: int(steps[number])], self.mapping.round_of == number
            in_round = self.product.present[mine].sum(axis=0, dtype=np.int64)[k_tiles]
            visits, own = int(visited[k_tiles].sum()), int(in_round.sum())
            before = 2 + self._mask_cycles(int(mine.sum()))
            looked = [k_tiles[stop:] for stop in self._last_places(mine, k_tiles)]
            look = [
                each.size * (self.scan + WALK_CYCLES + 2) + VISIT_CYCLES * int(visited[each].sum()) for each in looked
            ]
            make = k_tiles.size * (self.scan + WALK_CYCLES + 2 + self.parts)
            make += VISIT_CYCLES * visits + (self.groups - 1) * own
            common += self.row_rounds * (before + make) + sum(look)
            first = first or begin + before + look[0] + self.scan + WALK_CYCLES + 2
            taken, words = self._serial_tiles(mine, k_tiles)
            parts += taken
            part_words += words
            read += self.row_rounds * (before + k_tiles.size * (self.scan - 1) + 2 * visits)
            read += sum(each.size * (self.scan - 1) + 2 * int(visited[each].sum()) for each in looked)
        read += DESCRIPTOR_WORDS + self.blocks + self.columns
        return OutputStationaryWalk(first, common, parts, read, part_words)

    def _mask_cycles(self, own_columns: int) -> int:
        """Every column, and for those of the round a bit of every row tile of every part."""
        return self.columns + own_columns * (1 + self.parts * self.row_tiles) if self.masked else 0

    def _serial_tiles(self, mine: NDArray[np.bool_], k_tiles: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Cycles of a round's serial tiles by part, and the words read for them: all up to the last with data."""
        has = self.has[:, k_tiles]
        tiles = np.arange(1, self.row_tiles + 1)
        last = (has * tiles).max(axis=3, initial=0)
        fours = -(-last // SIZES_PER_WORD)
        works = self._works(mine, k_tiles, has)
        cycles: NDArray[np.int64] = ((2 + fours + last) * works).sum(axis=(0, 1))
        return cycles, int(((2 + fours) * works).sum())

    def _last_places(self, mine: NDArray[np.bool_], k_tiles: NDArray[np.int64]) -> list[int]:
        """By row round how far the first pass goes back: to the k_step at which every cluster has had its last one."""
        stop = np.full(self.row_rounds, k_tiles.size - 1, dtype=np.int64)
        has = self.has[:, k_tiles]
        for owner in np.unique(self.mapping.column_of[mine]).tolist():
            works = self._works(mine & (self.mapping.column_of == owner), k_tiles, has)
            last = k_tiles.size - 1 - np.argmax(works[:, ::-1], axis=1)
            stop = np.minimum(stop, np.where(works.any(axis=1), last, 0).min(axis=1))
        found: list[int] = stop.tolist()
        return found

    def _works(self, mine: NDArray[np.bool_], k_tiles: NDArray[np.int64], has: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether a part meets a block of the round, bool ``[row rounds, k_tiles, parts]``."""
        present = self.product.present[mine][:, k_tiles]
        if self.product.needed is None:
            holds_block = np.asarray(present.any(axis=0))
            return np.asarray(has.any(axis=3) & holds_block[None, :, None])
        meets = self.product.needed[:, mine].astype(np.int64) @ present.astype(np.int64) > 0
        rounds, parts, tiles_of = (np.arange(count) for count in (self.row_rounds, self.parts, self.row_tiles))
        grid = (rounds[:, None, None] * self.row_tiles + tiles_of) * self.parts + parts[:, None]
        tiles = meets[np.minimum(grid, len(meets) - 1)].transpose(0, 3, 1, 2)  # those beyond have no data
        return np.asarray((has & tiles).any(axis=3))
