"""Cycles in which index controllers walk an output-stationary product, as the gates take them (`controller_cycles`).

A round is walked twice: the first pass looks from its end for the last k_step of every cluster, the second makes
commands. Every controller visits all blocks of a k_step and reads which mesh rows have data in it; it looks for the
clusters of its own mesh rows, and sends the blocks of its own mesh columns and the serial tiles of its own mesh rows.
Owners are stored, blocks are found through their slots. With a mask, the bits of a round's output tiles are read before
it, and all sizes of a k_step in place of mesh rows with data.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.lowering import FabricShape
from acf.lowering.descriptor import DESCRIPTOR_WORDS
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.product_index import SIZES_PER_WORD, deal_batches, live_words, order_steps
from acf.lowering.tiled_product import TiledProduct

VISIT_CYCLES = 2
"""A block that is visited: its slot, and its entry, with which it is noted or sent."""
K_STEP_CYCLES = 5
"""A k_tile's number, a cycle until the first of its mesh rows with data is there, its offsets, and its end."""
ROUND_CYCLES = 3
"""Steps of a round, and the first place in its order."""
PART_CYCLES = 1
"""The first flit of a part; if the part has work, a cycle more for its counts."""


@dataclass(frozen=True, eq=False)
class OutputStationaryWalk:
    """The walk of a product, by what its controllers share and what each has of its own.

    ``begin``: cycles before the first round. ``common``: cycles of rounds that every controller takes, those of looking
    back not counted. ``look_back``: by round, ``[row rounds, mesh rows]`` the place in the order to which a controller
    of that mesh row looks back, and ``[places + 1]`` the cycles of doing so. ``parts [mesh rows]``: cycles of the
    serial tiles of a mesh row. ``blocks_of [mesh columns of a group]``: blocks of a mesh column that are sent, over all
    rounds. ``first_k_step``: cycles of the first round before its first command, but for looking back. ``k_steps``:
    batches of k_tiles in the index. ``read_words``: words that every controller reads beside those of looking back,
    ``part_words`` those that the owner of a row reads.
    """

    begin: int
    common: int
    look_back: list[tuple[NDArray[np.int64], NDArray[np.int64]]]
    parts: NDArray[np.int64]
    blocks_of: NDArray[np.int64]
    first_k_step: int
    k_steps: int
    read_words: int
    part_words: int

    def cycles(self, number: int, controllers: int, shape: FabricShape) -> int:
        """Those of controller ``number`` of so many that share mesh rows and mesh columns."""
        looked = sum(int(self._looked(number, controllers, *each).sum()) for each in self.look_back)
        own = int(self.parts[number::controllers].sum())
        return self.begin + self.common + looked + own + self._further_columns(number, controllers, shape)

    def set_up_cycles(self, controllers: int) -> int:
        """Until the last controller makes commands."""
        looked = max(int(self._looked(number, controllers, *self.look_back[0])[0]) for number in range(controllers))
        return self.begin + looked + self.first_k_step

    def look_back_cycles(self, controllers: int) -> int:
        """Cycles in which all controllers together look back."""
        numbers = range(controllers)
        return sum(int(self._looked(each, controllers, *found).sum()) for each in numbers for found in self.look_back)

    def _looked(
        self, number: int, controllers: int, stops: NDArray[np.int64], cycles_to: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Cycles of looking back in a round of columns, by row round."""
        found: NDArray[np.int64] = cycles_to[stops[:, number::controllers].min(axis=1)]
        return found

    def _further_columns(self, number: int, controllers: int, shape: FabricShape) -> int:
        """Cycles of blocks that a controller sends down more than one mesh column."""
        columns = np.arange(number, shape.mesh_columns, controllers) % self.blocks_of.size
        times = np.bincount(columns, minlength=self.blocks_of.size)
        return int((np.maximum(0, times - 1) * self.blocks_of).sum())


def output_stationary_walk(
    mapping: OutputStationaryMapping, product: TiledProduct, shape: FabricShape
) -> OutputStationaryWalk:
    """The walk of ``product`` under ``mapping``."""
    return _Walk(mapping, product, shape).count()


class _Walk:
    def __init__(self, mapping: OutputStationaryMapping, product: TiledProduct, shape: FabricShape) -> None:
        self.mapping, self.product, self.shape = mapping, product, shape
        self.parts = mapping.row_parts(shape)
        dealt = deal_batches(product, mapping, shape)
        self.has = dealt.nonzeros > 0
        self.row_rounds, self.row_tiles = self.has.shape[0], self.has.shape[3]
        self.columns, self.blocks = product.parallel.tiles, int(product.present.sum())
        self.masked = product.needed is not None
        size_words = self.parts * -(-self.row_tiles // SIZES_PER_WORD)
        self.scan_words = size_words if self.masked else live_words(mapping, shape)

    def count(self) -> OutputStationaryWalk:
        cleared = self.columns if self.masked else self.mapping.column_rounds
        steps, orders = order_steps(self.mapping, self.product)
        visited = self.product.present.sum(axis=0, dtype=np.int64)
        blocks_of = np.zeros(self.mapping.group_columns, dtype=np.int64)
        k_step, common, read, part_words = K_STEP_CYCLES + self.scan_words, 0, 0, 0
        look_back, parts = [], np.zeros(self.parts, dtype=np.int64)
        for number, order in enumerate(orders):
            k_tiles, mine = order[: int(steps[number])], self.mapping.round_of == number
            before = ROUND_CYCLES + self._mask_cycles(int(mine.sum()))
            visits = int(visited[k_tiles].sum())
            common += self.row_rounds * (before + k_tiles.size * k_step + VISIT_CYCLES * visits)
            read += self.row_rounds * (before + k_tiles.size * (k_step - 2) + VISIT_CYCLES * visits)
            each = k_step + VISIT_CYCLES * visited[k_tiles]
            look_back.append((self._last_places(mine, k_tiles), np.append(np.cumsum(each[::-1])[::-1], 0)))
            sent = self.row_rounds * self.product.present[mine][:, k_tiles].sum(axis=1, dtype=np.int64)
            np.add.at(blocks_of, self.mapping.column_of[mine], sent)
            taken, words = self._serial_tiles(mine, k_tiles)
            parts += taken
            part_words += words
        return OutputStationaryWalk(
            begin=DESCRIPTOR_WORDS + 2 + self.blocks + 2 + cleared + self.columns + 2,
            common=common,
            look_back=look_back,
            parts=parts.reshape(self.shape.mesh_rows, -1).sum(axis=1),
            blocks_of=blocks_of,
            first_k_step=ROUND_CYCLES + self._mask_cycles(int((self.mapping.round_of == 0).sum())) + k_step,
            k_steps=self.row_rounds * self.product.k_tiles,
            read_words=read + DESCRIPTOR_WORDS + self.blocks + self.columns,
            part_words=part_words,
        )

    def _mask_cycles(self, own_columns: int) -> int:
        """Every column, and for those of the round a bit of every row tile of every part."""
        return self.columns + own_columns * (1 + self.parts * self.row_tiles) if self.masked else 0

    def _serial_tiles(self, mine: NDArray[np.bool_], k_tiles: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Cycles of a round's serial tiles by part, and the words read for them: all up to the last with data."""
        has = self.has[:, k_tiles]
        tiles = np.arange(1, self.row_tiles + 1)
        last = (has * tiles).max(axis=3, initial=0)
        works = self._works(mine, k_tiles, has)
        cycles: NDArray[np.int64] = (PART_CYCLES + (1 + last) * works).sum(axis=(0, 1))
        return cycles, int((1 + (1 + -(-last // SIZES_PER_WORD)) * works).sum())

    def _last_places(self, mine: NDArray[np.bool_], k_tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        """How far the first pass goes back: to the k_step at which every cluster of a mesh row has had its last one.

        int64 ``[row rounds, mesh rows]``.
        """
        stop = np.full((self.row_rounds, self.parts), k_tiles.size - 1, dtype=np.int64)
        has = self.has[:, k_tiles]
        for owner in np.unique(self.mapping.column_of[mine]).tolist():
            works = self._works(mine & (self.mapping.column_of == owner), k_tiles, has)
            last = k_tiles.size - 1 - np.argmax(works[:, ::-1], axis=1)
            stop = np.minimum(stop, np.where(works.any(axis=1), last, 0))
        return np.asarray(stop.reshape(self.row_rounds, self.shape.mesh_rows, -1).min(axis=2))

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
