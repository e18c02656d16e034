"""Cycles in which index controllers walk a split-K product, as the gates take them (`acf.rtl`, `split_k_cycles`).

By round a controller reads the output tiles, looks back from the last k_tile for the last one of every cluster of its
own mesh rows, waits for the others that share the product, orders the sums of its mesh columns, and makes the packets
of the k_tiles of its mesh rows. Of a k_tile it reads the sizes of all tiles of both operands, four a cycle, and then
goes through them again: a cycle for every four tiles, or for every packet among them. The stationary operand lies by
k_tile.
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
MEETING_CYCLES = 1
"""The cycle in which all controllers of a product wait, where there are several."""
K_TILE_CYCLES = 5
"""A k_tile whose packets are made, beside its words and packets."""
END_CYCLES = 2
"""The end of the k_tiles, the end of the round."""


@dataclass(frozen=True)
class LookBack:
    """How far a round is looked back: by part, a mesh row in a group of mesh columns, groups outermost.

    ``stops [parts]``: the k_tile at which the last cluster of a part is found. ``is_found [parts]``: whether all are.
    ``scans [parts]``: k_tiles of a part that are read. ``count``: k_tiles of the product.
    """

    stops: NDArray[np.int64]
    is_found: NDArray[np.bool_]
    scans: NDArray[np.int64]
    count: int

    def visited(self, own: NDArray[np.bool_]) -> int:
        """K_tiles that the controller of so many parts visits from behind until its clusters are found."""
        return self.count - (int(self.stops[own].min()) if self.is_found[own].all() else 0)


@dataclass(frozen=True)
class SplitKWalk:
    """By round of one product: ``[rounds]`` cycles until it is looked back, ``[rounds, k_tiles]`` cycles of k_tiles.

    ``look_back``: by round, None where it has no output. ``scan``: words of a k_tile. ``works``: whether a k_tile has a
    packet. ``first_cycles``: cycles of the first k_tile before its first packet.
    """

    before: NDArray[np.int64]
    k_tiles: NDArray[np.int64]
    look_back: list[LookBack | None]
    scan: int
    works: NDArray[np.bool_]
    first_cycles: int

    def cycles(self, controllers: int, shape: FabricShape) -> int:
        """Until the last of so many controllers that share the mesh rows and columns is done."""
        rows = np.arange(self.k_tiles.shape[1]) % shape.mesh_rows % controllers
        columns = np.array([_own_columns(number, controllers, shape) for number in range(controllers)])
        time = np.full(controllers, START_CYCLES, dtype=np.int64)
        for number in range(len(self.before)):
            own = np.bincount(rows, self.k_tiles[number], controllers).astype(np.int64)
            time = self._met(time, number, shape) + columns + own + END_CYCLES
        return int(time.max())

    def set_up_cycles(self, controllers: int, shape: FabricShape) -> int:
        """Until the first packet."""
        met = self._met(np.full(controllers, START_CYCLES, dtype=np.int64), 0, shape)
        return int(met.max()) + _own_columns(0, controllers, shape) + self.first_cycles

    def _met(self, time: NDArray[np.int64], number: int, shape: FabricShape) -> NDArray[np.int64]:
        """When controllers that begin a round at ``time`` know the last k_tiles of all clusters."""
        found = time + self.before[number] + self._looked_back(number, time.size, shape)
        return found if time.size == 1 else np.full_like(found, found.max() + MEETING_CYCLES)

    def _looked_back(self, number: int, controllers: int, shape: FabricShape) -> NDArray[np.int64]:
        """Cycles of looking back in a round, by controller."""
        look_back, each = self.look_back[number], self.scan + LOOK_BACK_CYCLES
        if look_back is None:
            return np.ones(controllers, dtype=np.int64)
        owner = np.arange(look_back.stops.size) % shape.mesh_rows % controllers
        own = [owner == number for number in range(controllers)]
        return np.array([look_back.visited(mine) + 1 + int(look_back.scans[mine].sum()) * each for mine in own])

    @property
    def scans(self) -> int:
        """K_tiles whose words are read to look back, by all controllers together."""
        return sum(int(each.scans.sum()) for each in self.look_back if each is not None)


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
    sent = np.stack([each.sent_cycles(words) for each in rounds])
    works = np.stack([each.live.any(axis=0) for each in rounds])
    every = np.ones((1, product.k_tiles), dtype=np.int64)
    return SplitKWalk(
        before=np.array([ROUND_CYCLES + max(words) + 2 * each.rows.size for each in rounds], dtype=np.int64),
        k_tiles=(K_TILE_CYCLES + scan + sent * works) * every,
        look_back=[each.look_back(mapping, shape) for each in rounds],
        scan=scan,
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

    def look_back(self, mapping: SplitKMapping, shape: FabricShape) -> LookBack | None:
        """How far k_tiles are visited from behind until the last one of every cluster is known."""
        owners, parts = np.unique(self.owners).tolist(), shape.mesh_rows * mapping.split
        if not owners:
            return None
        last = np.full((parts, len(owners)), -1, dtype=np.int64)
        for part in range(min(parts, self.count)):
            if self.live.shape[1] < self.count:
                last[part] = (self.count - 1 - part) // parts
                continue
            mine = self.live[:, part::parts]
            last[part] = [_last(mine[self.owners == owner].any(axis=0)) for owner in owners]
        stops = np.arange(parts) + parts * np.maximum(0, last.min(axis=1))
        scans = np.array([len(range(first, self.count, parts)) for first in stops.tolist()], dtype=np.int64)
        return LookBack(stops, np.asarray((last >= 0).all(axis=1)), scans, self.count)


def _last(flags: NDArray[np.bool_]) -> int:
    """The last place that is set, -1 where none is."""
    places = np.flatnonzero(flags)
    return int(places[-1]) if places.size else -1
