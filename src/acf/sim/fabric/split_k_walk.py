"""Cycles in which an index controller walks a split-K product, as the gates take them (`acf.rtl`, `split_k_cycles`).

By round a controller reads the output tiles, looks back from the last k_tile for the last one of every cluster, orders
the sums of its mesh columns, and makes the packets of the k_tiles of its own mesh rows. Of a k_tile it reads the sizes
of all tiles of both operands, four a cycle, and then goes through them again: a cycle for every four tiles, or for
every packet among them. The stationary operand lies by k_tile.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.lowering import FabricShape
from acf.lowering.descriptor import DESCRIPTOR_WORDS
from acf.lowering.product_index import SIZES_PER_WORD
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import TiledProduct

START_CYCLES = DESCRIPTOR_WORDS + 4
"""Descriptor, its check, and the part of the last k_tile."""
ROUND_CYCLES = 4
"""Bounds of a round's output tiles, and a cycle until the first of them is there."""
LOOK_BACK_CYCLES = 2
"""A k_tile that is read from behind, beside a cycle to visit it and its words."""
K_TILE_CYCLES = 5
"""A k_tile whose packets are made, beside its words and packets."""
END_CYCLES = 2
"""The end of the k_tiles, the end of the round."""


@dataclass(frozen=True)
class SplitKWalk:
    """By round of one product: ``[rounds]`` cycles until packets are made, ``[rounds, k_tiles]`` cycles of k_tiles.

    ``looked_back``: k_tiles whose words were read to find the last ones, by round. ``works``: whether a k_tile has a
    packet. ``first_cycles``: cycles of the first k_tile before its first packet.
    """

    before: NDArray[np.int64]
    k_tiles: NDArray[np.int64]
    looked_back: NDArray[np.int64]
    works: NDArray[np.bool_]
    first_cycles: int

    def cycles(self, number: int, controllers: int, shape: FabricShape) -> int:
        """Those of controller ``number`` of so many that share the mesh rows and columns."""
        mine = np.arange(self.k_tiles.shape[1]) % shape.mesh_rows % controllers == number
        rounds = len(self.before)
        columns = rounds * _own_columns(number, controllers, shape)
        own = int(self.k_tiles[:, mine].sum())
        return START_CYCLES + int(self.before.sum()) + columns + own + rounds * END_CYCLES

    def set_up_cycles(self, controllers: int, shape: FabricShape) -> int:
        """Until the first packet."""
        return START_CYCLES + int(self.before[0]) + _own_columns(0, controllers, shape) + self.first_cycles


def _own_columns(number: int, controllers: int, shape: FabricShape) -> int:
    return len(range(number, shape.mesh_columns, controllers))


def split_k_walk(mapping: SplitKMapping, product: TiledProduct, shape: FabricShape) -> SplitKWalk:
    """The walk of ``product`` under ``mapping``."""
    rows, columns = product.serial.tile_nonzeros > 0, product.present
    is_full = bool(rows.all() and columns.all())
    looked_at = 1 if is_full else product.k_tiles  # k_tiles without an empty tile are all alike
    rounds = [
        _Round.of(mapping, number, rows[:, :looked_at], columns[:, :looked_at], product.k_tiles)
        for number in range(mapping.rounds)
    ]
    words = [-(-tiles // SIZES_PER_WORD) for tiles in (product.parallel.tiles, product.serial.tiles)]
    scan = sum(words)
    found = [each.look_back(mapping, shape) for each in rounds]
    before = [
        ROUND_CYCLES + max(words) + 2 * each.rows.size + visited + 1 + scans * (scan + LOOK_BACK_CYCLES)
        for each, (visited, scans) in zip(rounds, found, strict=True)
    ]
    sent = np.stack([each.sent_cycles(words) for each in rounds])
    works = np.stack([each.live.any(axis=0) for each in rounds])
    every = np.ones((1, product.k_tiles), dtype=np.int64)
    return SplitKWalk(
        before=np.array(before, dtype=np.int64),
        k_tiles=(K_TILE_CYCLES + scan + sent * works) * every,
        looked_back=np.array([scans for _, scans in found], dtype=np.int64),
        works=works & (every > 0),
        first_cycles=K_TILE_CYCLES + scan,
    )


@dataclass(frozen=True, eq=False)
class _Round:
    """Output tiles of a round by row, and ``live [outputs, k_tiles]``: whether a k_tile adds to them.

    Of a product without an empty tile ``live`` has one k_tile, which stands for all ``count`` of them.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    owners: NDArray[np.int64]
    live: NDArray[np.bool_]
    count: int

    @classmethod
    def of(
        cls,
        mapping: SplitKMapping,
        number: int,
        has_row: NDArray[np.bool_],
        has_column: NDArray[np.bool_],
        count: int,
    ) -> "_Round":
        mine = mapping.round_of == number
        rows, columns = mapping.output_rows[mine], mapping.output_columns[mine]
        return cls(rows, columns, mapping.column_of[mine], has_row[rows] & has_column[columns], count)

    def sent_cycles(self, words: list[int]) -> NDArray[np.int64]:
        """Cycles of the second pass by k_tile: of blocks those that are sent, of rows all that the round has."""
        by_column = np.zeros((SIZES_PER_WORD * words[0], self.live.shape[1]), dtype=bool)
        order = np.argsort(self.columns, kind="stable")
        distinct, first = np.unique(self.columns[order], return_index=True)
        if distinct.size:
            by_column[distinct] = np.logical_or.reduceat(self.live[order], first, axis=0)
        of_columns = np.maximum(1, by_column.reshape(words[0], SIZES_PER_WORD, -1).sum(axis=1)).sum(axis=0)
        of_rows = np.bincount(np.unique(self.rows) // SIZES_PER_WORD, minlength=words[1])
        sent: NDArray[np.int64] = of_columns + int(np.maximum(1, of_rows).sum())
        return sent

    def look_back(self, mapping: SplitKMapping, shape: FabricShape) -> tuple[int, int]:
        """K_tiles visited from behind until the last one of every cluster is known, and how many of them are read."""
        owners, parts = np.unique(self.owners).tolist(), shape.mesh_rows * mapping.split
        if not owners:
            return 0, 0
        last = np.full((parts, len(owners)), -1, dtype=np.int64)
        for part in range(min(parts, self.count)):
            if self.live.shape[1] < self.count:
                last[part] = (self.count - 1 - part) // parts
                continue
            mine = self.live[:, part::parts]
            last[part] = [_last(mine[self.owners == owner].any(axis=0)) for owner in owners]
        stop = np.arange(parts) + parts * np.maximum(0, last.min(axis=1))
        scans = sum(len(range(first, self.count, parts)) for first in stop.tolist())
        return self.count - (0 if (last < 0).any() else int(stop.min())), scans


def _last(flags: NDArray[np.bool_]) -> int:
    """The last place that is set, -1 where none is."""
    places = np.flatnonzero(flags)
    return int(places[-1]) if places.size else -1
