"""The packets of a product, derived from its descriptor and its index alone, by the models of the device's own units.

`walk_blocks` walks the index, `prefix_sums` turns sizes into addresses, `plan_routes` shares output columns where the
descriptor asks for it. Nothing here sees a mapping or an operand, so what this yields a controller can derive.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from acf.lowering import PARALLEL, SERIAL
from acf.lowering.descriptor import DESCRIPTOR_WORDS, ProductDescriptor
from acf.lowering.product_index import EMPTY_ROUND, SIZES_PER_WORD, batch_words, flits_of, row_bit_words
from acf.rtl.design.index.block_walker import WalkerSpec, walk_blocks
from acf.rtl.design.index.controller_packet import ControllerPacket, Mesh, Words
from acf.rtl.design.index.prefix_sum import prefix_sums
from acf.rtl.design.index.split_k_model import SplitKIndex, split_k_packets
from acf.rtl.design.mesh.route_planner import PlannerSpec
from acf.rtl.design.mesh.route_planner_model import plan_routes

WHOLE_BLOCKS = WalkerSpec(block_height=1, block_width=1, index_bits=32)
"""A walker that visits blocks, not their elements."""


@dataclass(frozen=True)
class Block:
    """A block of one k_tile: its output column, size byte and first flit."""

    column: int
    size: int
    address: int


@dataclass(frozen=True)
class Owner:
    """Who accumulates an output column: the mesh column within its group, the place in its bank, the round."""

    mesh_column: int
    place: int
    round: int


@dataclass(frozen=True, eq=False)
class Index:
    """The parts of an output-stationary index as the units read them."""

    descriptor: ProductDescriptor
    words: Words
    mesh: Mesh

    def part(self, at: int, count: int) -> NDArray[np.int64]:
        """``count`` words from ``at`` on."""
        return self.words[at : at + count].astype(np.int64)

    @cached_property
    def entries(self) -> list[int]:
        """Entries of all slots."""
        return _numbers(self.part(self.descriptor.entries_at, self.descriptor.blocks))

    @cached_property
    def addresses(self) -> list[int]:
        """First flit of every slot: the prefix sum of their flits."""
        sizes = np.array(self.entries, dtype=np.int64) >> 16 & 0xFF
        return _numbers(prefix_sums(flits_of(sizes), width=32))

    @cached_property
    def offsets(self) -> list[int]:
        """First place of every k_tile."""
        return _numbers(self.part(0, self.descriptor.k_tiles + 1))

    @cached_property
    def slots(self) -> list[int]:
        """Slot of every place; where blocks are stored by k_tile, the place itself."""
        blocks = self.descriptor.blocks
        return _numbers(np.arange(blocks) if self.descriptor.direct else self.part(self.descriptor.slots_at, blocks))

    def blocks(self, k_tile: int) -> list[Block]:
        """The blocks of a k_tile in order of output columns, as the walker visits them."""
        offsets = self.offsets[k_tile : k_tile + 2]
        found = walk_blocks(offsets, self.slots, self.entries, WHOLE_BLOCKS, not self.descriptor.direct)
        return [Block(each.index & 0xFFFF, each.index >> 16, self.addresses[each.address]) for each in found]

    @property
    def live_words(self) -> int:
        """Words before the batches of a k_tile that tell the mesh rows with data."""
        return self.mesh.columns // self.descriptor.group_columns * row_bit_words(self.mesh.rows)

    def batch(self, row_round: int, k_tile: int, part: int) -> "Batch":
        """The batch of serial tiles of a part."""
        described = self.descriptor
        tiles = described.row_tiles or -(-described.rows // described.tile)
        size = batch_words(tiles)
        k_step = row_round * described.k_tiles + k_tile
        at = described.batches_at + k_step * described.batch_stride + self.live_words + part * size
        first, counts, *packed = self.part(at, size).tolist()
        sizes = [packed[tile // SIZES_PER_WORD] >> 8 * (tile % SIZES_PER_WORD) & 0xFF for tile in range(tiles)]
        addresses = first + prefix_sums(flits_of(np.array(sizes)), width=32)
        if described.serial_step:
            addresses = first + described.serial_step * np.arange(tiles)
        return Batch(sizes, addresses.tolist(), counts & 0xFF, counts >> 8 & 0xFF)

    def owners(self) -> dict[int, Owner]:
        """Owners of all output columns that hold a block, stored or planned."""
        described = self.descriptor
        if described.policy != "stored":
            return self._planned_owners()
        words = self.part(described.owners_at, described.column_tiles).tolist()
        owners = {column: Owner(word & 0xFF, word >> 8 & 0xFF, word >> 16) for column, word in enumerate(words)}
        return {column: owner for column, owner in owners.items() if owner.round != EMPTY_ROUND}

    def _planned_owners(self) -> dict[int, Owner]:
        """Share the columns by the route planner; then fill the banks of each owner in order of columns."""
        described = self.descriptor
        present = np.zeros((described.column_tiles, described.k_tiles), dtype=bool)
        for k_tile in range(described.k_tiles):
            present[[block.column for block in self.blocks(k_tile)], k_tile] = True
        filled = np.flatnonzero(present.any(axis=1))
        spec = PlannerSpec(self.mesh.columns, 1, max(1, filled.size), described.k_tiles, 0, max(2, filled.size))
        shares = plan_routes(spec, present[filled], described.policy).owners.tolist()
        taken, owners = [0] * self.mesh.columns, {}
        for column, share in zip(filled.tolist(), shares, strict=True):
            number, place = divmod(taken[share], described.columns_per_round)
            owners[column] = Owner(share, place, number)
            taken[share] += 1
        return owners

    def order(self, column_round: int) -> list[int]:
        """The k_tiles of a round in the order of sending."""
        described = self.descriptor
        steps, *order = self.part(described.orders_at + column_round * (described.k_tiles + 1), described.k_tiles + 1)
        return [int(k_tile) for k_tile in order[:steps]]

    def is_needed(self, row_tile: int, column: int) -> bool:
        """Whether an output tile of the grid is kept."""
        described = self.descriptor
        if not described.masked:
            return True
        words = -(-described.column_tiles // 32)
        return bool(int(self.words[described.mask_at + row_tile * words + column // 32]) >> column % 32 & 1)


@dataclass(frozen=True)
class Batch:
    """Serial tiles of a part at one k_tile: size bytes, first flits, how many there are, the last with data + 1."""

    sizes: list[int]
    addresses: list[int]
    tiles: int
    last: int


def _numbers(words: NDArray[np.int64]) -> list[int]:
    return [int(word) for word in words]


def read_index(memory: Words, mesh: Mesh) -> Index | SplitKIndex:
    """The index behind the descriptor at the start of ``memory``."""
    descriptor = ProductDescriptor.from_words(memory[:DESCRIPTOR_WORDS].tolist())
    kind = SplitKIndex if descriptor.split_k else Index
    return kind(descriptor, memory[DESCRIPTOR_WORDS:][: descriptor.index_words], mesh)


def controller_packets(memory: Words, mesh: Mesh) -> list[list[ControllerPacket]]:
    """The packets of every line in order of sending, mesh rows first, from descriptor and index in ``memory``."""
    index = read_index(memory, mesh)
    lines: list[list[ControllerPacket]] = [[] for _ in range(mesh.rows + mesh.columns)]
    for packet in split_k_packets(index) if isinstance(index, SplitKIndex) else output_stationary_packets(index):
        lines[packet.line].append(packet)
    return lines


def part_first(index: Index, parts: int) -> list[int]:
    """The number of every part's first serial tile: the batches tell how many it has."""
    rounds = range(index.descriptor.row_rounds)
    tiles = [sum(index.batch(number, 0, part).tiles for number in rounds) for part in range(parts)]
    return [int(first) for first in prefix_sums(tiles, width=32)]


def output_stationary_packets(index: Index) -> Iterator[ControllerPacket]:
    """By round, then along the stored order of the reduction."""
    described, owners = index.descriptor, index.owners()
    groups = index.mesh.columns // described.group_columns
    first = part_first(index, index.mesh.rows * groups)
    for number in range(described.column_rounds * described.row_rounds):
        column_round, row_round = divmod(number, described.row_rounds)
        for place, k_tile in enumerate(index.order(column_round)):
            blocks = [each for each in index.blocks(k_tile) if owners[each.column].round == column_round]
            step = _OutputStationaryStep(index, owners, blocks, (number, row_round, place, k_tile))
            yield from step.packets(first)


class _OutputStationaryStep:
    """One k_step: ``when`` is (round, batch, place in the order, k_tile)."""

    def __init__(
        self, index: Index, owners: dict[int, Owner], blocks: list[Block], when: tuple[int, int, int, int]
    ) -> None:
        self.index, self.owners, self.blocks = index, owners, blocks
        self.number, self.row_round, self.place, self.k_tile = when
        self.groups = index.mesh.columns // index.descriptor.group_columns
        self.batches = {
            (row, group): index.batch(self.row_round, self.k_tile, row * self.groups + group)
            for row in range(index.mesh.rows)
            for group in range(self.groups)
        }
        self.used = {
            (*part, block.column)
            for part, batch in self.batches.items()
            for block in blocks
            if any(size and self._needed(part, tile, block) for tile, size in enumerate(batch.sizes))
        }

    def _needed(self, part: tuple[int, int], tile: int, block: Block) -> bool:
        parts, number = self.index.mesh.rows * self.groups, part[0] * self.groups + part[1]
        grid_row = (self.row_round * self.index.descriptor.row_tiles + tile) * parts + number
        return self.index.is_needed(grid_row, block.column)

    def packets(self, first: list[int]) -> Iterator[ControllerPacket]:
        k_step = self.number * self.index.descriptor.k_tiles + self.place
        group_columns, rows = self.index.descriptor.group_columns, self.index.mesh.rows
        for block in self.blocks:
            for group in range(self.groups):
                takers = sum(1 << row for row in range(rows) if (row, group, block.column) in self.used)
                line = rows + group * group_columns + self.owners[block.column].mesh_column
                where = (k_step, self.number, block.column, self.k_tile, block.size, block.address)
                if takers:
                    yield ControllerPacket(line, PARALLEL, *where, takers)
        for (row, group), batch in self.batches.items():
            begin = first[row * self.groups + group] + self.row_round * self.index.descriptor.row_tiles
            for tile, (size, address) in enumerate(zip(batch.sizes, batch.addresses, strict=False)):
                met = self._met((row, group), tile) if size else (0,) * self.index.mesh.columns
                destinations = sum(1 << place for place, bits in enumerate(met) if bits)
                where = (k_step, self.number, begin + tile, self.k_tile, size, address)
                if destinations:
                    yield ControllerPacket(row, SERIAL, *where, destinations, met)

    def _met(self, part: tuple[int, int], tile: int) -> tuple[int, ...]:
        """By mesh column the blocks that a tile meets, as bits in the order of arrival."""
        met, arrived = [0] * self.index.mesh.columns, [0] * self.index.mesh.columns
        for block in self.blocks:
            if (*part, block.column) in self.used:
                place = part[1] * self.index.descriptor.group_columns + self.owners[block.column].mesh_column
                met[place] |= self._needed(part, tile, block) << arrived[place]
                arrived[place] += 1
        return tuple(met)
