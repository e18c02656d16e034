"""The packets of a split-K product, derived from its descriptor and its index alone.

A controller handles one k_tile of a round after the other: blocks by output column, then serial tiles by row. A cluster
stores the blocks that one of its serial tiles meets, so which blocks go where depends on both operands.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from acf.lowering import PARALLEL, SERIAL
from acf.lowering.descriptor import ProductDescriptor
from acf.lowering.product_index import SIZES_PER_WORD, flits_of
from acf.rtl.design.index.controller_packet import ControllerPacket, Mesh, Words
from acf.rtl.design.index.prefix_sum import prefix_sums


@dataclass(frozen=True)
class Tiles:
    """Tiles of one operand at a k_tile: size bytes and first flits."""

    sizes: list[int]
    addresses: list[int]


@dataclass(frozen=True)
class Output:
    """An output tile of a round: its coordinates, its mesh column in a group, the number of its column there."""

    row: int
    column: int
    mesh_column: int
    number: int


@dataclass(frozen=True, eq=False)
class SplitKIndex:
    """The parts of a split-K index as a controller reads them."""

    descriptor: ProductDescriptor
    words: Words
    mesh: Mesh

    @property
    def row_tiles(self) -> int:
        """Tiles of the streamed operand along the output rows."""
        return -(-self.descriptor.rows // self.descriptor.tile)

    @property
    def groups(self) -> int:
        """Groups of mesh columns."""
        return self.mesh.columns // self.descriptor.group_columns

    @cached_property
    def _first(self) -> list[int]:
        return self._part(self.descriptor.orders_at, self.descriptor.column_rounds + 1)

    def _part(self, at: int, count: int) -> list[int]:
        found: list[int] = self.words[at : at + count].astype(np.int64).tolist()
        return found

    def outputs(self, number: int) -> list[Output]:
        """The output tiles of a round, by row."""
        first, end = self._first[number : number + 2]
        words = self._part(self.descriptor.owners_at + 2 * first, 2 * (end - first))
        return [
            Output(where & 0xFFFF, where >> 16, owner & 0xFF, owner >> 8)
            for where, owner in zip(words[::2], words[1::2], strict=True)
        ]

    def part_of(self, k_tile: int) -> tuple[int, int]:
        """Mesh row and first mesh column of the group that handle a k_tile."""
        group, row = divmod(k_tile, self.mesh.rows)
        return row, group % self.groups * self.descriptor.group_columns

    def tiles(self, k_tile: int) -> tuple[Tiles, Tiles]:
        """Serial tiles and blocks of a k_tile; a size of 0: the tile is absent."""
        described = self.descriptor
        at = described.batches_at + k_tile * described.batch_stride
        serial, block, *packed = self._part(at, described.batch_stride)
        sizes = [word >> 8 * lane & 0xFF for word in packed for lane in range(SIZES_PER_WORD)]
        column_words = -(-described.column_tiles // SIZES_PER_WORD)
        columns = sizes[: described.column_tiles]
        rows = sizes[column_words * SIZES_PER_WORD :][: self.row_tiles]
        steps = described.serial_step * np.arange(self.row_tiles)
        row_flits = serial + (steps if described.serial_step else _flits_before(rows))
        if described.direct:
            block_flits = (block + _flits_before(columns)).tolist()
        else:
            entries = block + np.cumsum([0, *(size > 0 for size in columns)])[:-1]
            block_flits = [
                self._part(described.entries_at + entry, 1)[0] if columns[n] else 0
                for n, entry in enumerate(entries.tolist())
            ]
        return Tiles(rows, row_flits.tolist()), Tiles(columns, block_flits)


def _flits_before(sizes: list[int]) -> NDArray[np.int64]:
    return prefix_sums(flits_of(np.array(sizes, dtype=np.int64)), width=32)[:-1]


class KTileWork:
    """What the outputs of a round make of one k_tile: the blocks that every cluster stores, the serial tiles it meets.

    ``stored``: by mesh column of a group, the numbers of its columns. ``met``: by row, then by mesh column, those that
    the row's tile meets.
    """

    def __init__(self, outputs: list[Output], rows: Tiles, columns: Tiles, group_columns: int) -> None:
        self.stored: list[set[int]] = [set() for _ in range(group_columns)]
        self.met: dict[int, list[set[int]]] = {}
        self.takers: dict[int, set[int]] = {}
        for output in outputs:
            if rows.sizes[output.row] and columns.sizes[output.column]:
                self.stored[output.mesh_column].add(output.number)
                met = self.met.setdefault(output.row, [set() for _ in range(group_columns)])
                met[output.mesh_column].add(output.number)
                self.takers.setdefault(output.column, set()).add(output.mesh_column)

    def rank(self, mesh_column: int, number: int) -> int:
        """The order of arrival of a block at a cluster."""
        return sum(other < number for other in self.stored[mesh_column])

    def met_ranks(self, row: int, mesh_column: int) -> int:
        """The blocks that a row's tile meets, as bits in their order of arrival."""
        return sum(1 << self.rank(mesh_column, number) for number in self.met[row][mesh_column])


def split_k_packets(index: SplitKIndex) -> Iterator[ControllerPacket]:
    """By round; the k_tiles are dealt out to mesh rows, then to groups of mesh columns."""
    described = index.descriptor
    steps = -(-described.k_tiles // (index.mesh.rows * index.groups))
    for number in range(described.column_rounds):
        outputs = index.outputs(number)
        for step in range(steps):
            first = step * index.mesh.rows * index.groups
            parts = range(first, min(described.k_tiles, first + index.mesh.rows * index.groups))
            for k_tile in sorted(parts, key=index.part_of):
                yield from _k_tile_packets(index, outputs, (number * steps + step, number, k_tile))


def _k_tile_packets(
    index: SplitKIndex, outputs: list[Output], when: tuple[int, int, int]
) -> Iterator[ControllerPacket]:
    """The packets of one k_tile in a round; ``when`` is (k_step, round, k_tile)."""
    k_step, number, k_tile = when
    (line, base), (rows, columns) = index.part_of(k_tile), index.tiles(k_tile)
    work = KTileWork(outputs, rows, columns, index.descriptor.group_columns)
    for column in sorted(work.takers):
        takers = sum(1 << base + place for place in work.takers[column])
        where = (k_step, number, column, k_tile, columns.sizes[column], columns.addresses[column])
        yield ControllerPacket(line, PARALLEL, *where, takers)
    for row in sorted(work.met):
        met = [0] * index.mesh.columns
        for place in range(index.descriptor.group_columns):
            met[base + place] = work.met_ranks(row, place)
        destinations = sum(1 << place for place, bits in enumerate(met) if bits)
        where = (k_step, number, row, k_tile, rows.sizes[row], rows.addresses[row])
        yield ControllerPacket(line, SERIAL, *where, destinations, tuple(met))
