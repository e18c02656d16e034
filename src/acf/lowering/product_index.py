"""A product's index in memory: what a controller walks, as 32-bit words. The descriptor says where each part begins.

| part | words | content |
|---|---|---|
| offsets | k_tiles + 1 | first place of every k_tile among the blocks in order of k_tiles |
| slots | blocks, none if direct | slot of every place, where blocks are stored by output column (block-CSC walk) |
| entries | blocks | by slot: output column (bits 15:0), size byte (bits 23:16) |
| owners | column tiles | mesh column (7:0), place in its bank (15:8), round (31:16; 0xffff: empty); absent if planned |
| orders | column rounds x (1 + k_tiles) | how many k_tiles are sent, then all in the order of sending |
| batches | row rounds x k_tiles x (rows with data + parts x (2 + row tiles / 4)) | see below |
| mask | row tiles x column tiles / 32 | output tiles that are kept; absent if all are |

The batches of a k_tile begin with a bit for every mesh row that has a tile with data, 32 rows a word, by group of mesh
columns. Then every part of the mesh has its first flit, counts, and sizes of row tiles, 4 a word.
Counts of a batch are its row tiles (bits 7:0) and the last of them with data, from 1 (15:8). A size byte is a tile's
flits (bits 6:0) and whether it is packed (bit 7); 0: the tile holds no non-zero. Tiles of the stationary operand lie in
order of slots, those of the streamed one in order of batches, so a prefix sum over sizes gives addresses; with
``serial_step`` in the descriptor a batch has its row tiles so many flits apart from its first flit on.

A split-K product is walked tile by tile on both sides, so it has neither offsets nor slots:

| part | words | content |
|---|---|---|
| entries | blocks, none if direct | first flit of every block, by k_tile, then by output column |
| outputs | 2 x output tiles, by round and row | row, column (31:16); mesh column, number of the column there (15:8) |
| orders | column rounds + 2 | first output of every round; mesh row and group (15:8) of the last k_tile |
| batches | k_tiles x (2 + column tiles / 4 + row tiles / 4) | first serial flit; first block; sizes, 4 a word |

The first block of a batch is a flit if the stationary operand lies by k_tile (``direct``), else the number of an entry.
A cluster numbers the output columns that it has in a round in order of columns; blocks reach it in that order.
"""

from collections.abc import Mapping as Table
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acf.errors import ArchitectureError
from acf.lowering.descriptor import DESCRIPTOR_BYTES, WORD_BYTES, ProductDescriptor
from acf.lowering.fabric_shape import VALUE_BYTES, FabricShape
from acf.lowering.mapping import Mapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.output_stationary_packets import deal_rows
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tile_format import is_packed, packed_bytes
from acf.lowering.tiled_product import TiledProduct

Words = NDArray[np.uint32]
Sizes = NDArray[np.int64]
"""Size bytes of tiles."""

EMPTY_ROUND = 0xFFFF
PACKED = 0x80
SIZES_PER_WORD = 4
ROWS_PER_WORD = 32
"""Mesh rows of a word that has a bit for each."""


@dataclass(frozen=True, eq=False)
class ProductIndex:
    """A product for a controller: its descriptor, the index as 32-bit words, and where the tiles' flits lie.

    ``serial_address`` by (serial tile, k_tile) and ``parallel_address`` by (output column, k_tile): the first flit of
    every tile that is stored, counted from the start of its operand.
    """

    descriptor: ProductDescriptor
    words: Words
    serial_address: Table[tuple[int, int], int]
    parallel_address: Table[tuple[int, int], int]

    @property
    def index_bytes(self) -> int:
        """Bytes of the index."""
        return int(self.words.size) * WORD_BYTES

    @property
    def host_bytes(self) -> int:
        """Bytes that the host sends for every run of the product."""
        return DESCRIPTOR_BYTES

    def memory(self) -> Words:
        """Descriptor and index as a controller reads them, one after the other."""
        return np.concatenate((np.array(self.descriptor.words(), dtype=np.uint32), self.words))


def size_bytes(nonzeros: NDArray[np.int64], shape: FabricShape) -> Sizes:
    """The size byte of tiles with so many non-zeros."""
    packed = is_packed(nonzeros, shape)
    flits = -(-np.where(packed, packed_bytes(nonzeros, shape), VALUE_BYTES * shape.tile**2) // shape.link_bytes)
    if int(flits.max(initial=0)) >= PACKED:
        raise ArchitectureError(
            f"a tile of {int(flits.max())} flits exceeds the {PACKED - 1} of a size byte; use wider links"
        )
    sizes: Sizes = np.where(nonzeros > 0, flits + PACKED * packed, 0)
    return sizes


def flits_of(size: Sizes | int) -> Sizes | int:
    """The flits that a size byte tells."""
    return size & (PACKED - 1)


def build_index(
    product: TiledProduct, mapping: Mapping, shape: FabricShape, direct: bool = False, policy: str = "stored"
) -> ProductIndex:
    """Descriptor and index of ``product`` under ``mapping``.

    ``direct``: the stationary operand is stored by k_tile, as weights are for input gradients; else by output column.
    ``policy``: who owns an output column, one of `acf.lowering.descriptor.POLICIES`; only output-stationary products
    over the whole mesh can be planned by the controller.
    """
    if isinstance(mapping, SplitKMapping):
        return _SplitKBuilder(product, shape, direct).build(mapping)
    return _OutputStationaryBuilder(product, shape, direct).build(mapping, policy)


class _Builder:
    """The parts that both mappings share, appended one after the other."""

    def __init__(self, product: TiledProduct, shape: FabricShape, direct: bool) -> None:
        self.product, self.shape, self.direct = product, shape, direct
        self.parts: list[NDArray[np.int64]] = []
        self.starts: dict[str, int] = {}
        self.used = 0

    def append(self, name: str, words: NDArray[np.int64]) -> None:
        self.starts[name] = self.used
        self.parts.append(words.reshape(-1))
        self.used += words.size

    def append_blocks(self) -> dict[tuple[int, int], int]:
        """Offsets, slots and entries of the stationary operand; the address of every tile."""
        present = self.product.present
        sizes = size_bytes(self.product.parallel.tile_nonzeros, self.shape)
        by_k, columns_by_k = np.nonzero(present.T)
        by_column, k_by_column = np.nonzero(present)
        self.append("offsets_at", np.concatenate(([0], np.cumsum(present.sum(axis=0)))).astype(np.int64))
        slot_of = np.zeros(present.shape, dtype=np.int64)
        stored = (columns_by_k, by_k) if self.direct else (by_column, k_by_column)
        slot_of[stored] = np.arange(by_k.size)
        self.append("slots_at", np.zeros(0, dtype=np.int64) if self.direct else slot_of[columns_by_k, by_k])
        self.append("entries_at", stored[0] | sizes[stored] << 16)
        flits = np.asarray(flits_of(sizes[stored]))
        first = np.cumsum(flits) - flits
        return {(int(column), int(k)): int(at) for column, k, at in zip(stored[0], stored[1], first, strict=True)}

    def append_mask(self) -> None:
        needed = self.product.needed
        if needed is None:
            self.append("mask_at", np.zeros(0, dtype=np.int64))
            return
        padded = np.pad(needed, ((0, 0), (0, -needed.shape[1] % 32)))
        packed = np.packbits(padded, axis=1, bitorder="little")
        self.append("mask_at", np.ascontiguousarray(packed).view("<u4").astype(np.int64))

    def finish(
        self,
        mapping: Table[str, Any],
        addresses: tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]],
    ) -> ProductIndex:
        product, shape = self.product, self.shape
        width = product.parallel.rows - (product.parallel.tiles - 1) * shape.tile
        starts = {name: at for name, at in self.starts.items() if name != "offsets_at"}
        values: dict[str, Any] = {
            "swapped": product.swapped,
            "direct": self.direct,
            "masked": product.needed is not None,
            "tile": shape.tile,
            "rows": product.serial.rows,
            "columns": product.parallel.rows,
            "depth": product.k_tiles * shape.tile,
            "k_tiles": product.k_tiles,
            "column_tiles": product.parallel.tiles,
            "edge_cycles": max(-(-width // shape.lanes), shape.scus_per_port),
            "blocks": int(product.present.sum()),
            "index_words": self.used,
            **starts,
            **mapping,
        }
        words = np.concatenate(self.parts).astype(np.uint32)
        return ProductIndex(ProductDescriptor(**values), words, *addresses)


class _OutputStationaryBuilder(_Builder):
    def build(self, mapping: OutputStationaryMapping, policy: str) -> ProductIndex:
        product, shape = self.product, self.shape
        if policy != "stored" and mapping.group_columns != shape.mesh_columns:
            raise ArchitectureError(
                f"policy {policy!r} shares columns among all {shape.mesh_columns} mesh columns, and this product's "
                f"groups have {mapping.group_columns}; store the owners"
            )
        parallel = self.append_blocks()
        rounds, columns_per_round = mapping.column_rounds, _columns_per_round(mapping)
        self.append("owners_at", _owner_words(mapping) if policy == "stored" else np.zeros(0, dtype=np.int64))
        self.append("orders_at", _order_words(mapping, product))
        serial = self._append_batches(mapping)
        self.append_mask()
        tiles = deal_rows(product, mapping.row_parts(shape), shape)
        fields = {
            "split_k": False,
            "policy": policy,
            "column_rounds": rounds,
            "row_rounds": row_rounds(int(np.diff(tiles.part_first).max()), mapping.row_tiles_per_round),
            "row_tiles": mapping.row_tiles_per_round,
            "group_columns": mapping.group_columns,
            "columns_per_round": columns_per_round,
            "batch_stride": live_words(mapping, shape)
            + mapping.row_parts(shape) * batch_words(mapping.row_tiles_per_round),
        }
        return self.finish(fields, (serial, parallel))

    def _append_batches(self, mapping: OutputStationaryMapping) -> dict[tuple[int, int], int]:
        dealt = deal_batches(self.product, mapping, self.shape)
        sizes = size_bytes(dealt.nonzeros, self.shape)
        batches = _batch_words(sizes, (dealt.numbers >= 0).sum(axis=2)[:, None, :])
        live = _live_rows(sizes, self.shape.mesh_rows)
        self.append("batches_at", np.concatenate((live, batches.reshape(*batches.shape[:2], -1)), axis=-1))
        return _addresses(sizes, np.broadcast_to(dealt.numbers[:, None], sizes.shape))


@dataclass(frozen=True, eq=False)
class DealtBatches:
    """Serial tiles as an output-stationary product takes them: ``numbers [row rounds, parts, row tiles]``, -1: none.

    ``nonzeros [row rounds, k_tiles, parts, row tiles]``: those of every tile.
    """

    numbers: NDArray[np.int64]
    nonzeros: NDArray[np.int64]


def deal_batches(product: TiledProduct, mapping: OutputStationaryMapping, shape: FabricShape) -> DealtBatches:
    """Deal the row tiles out to parts of the mesh, batch by batch."""
    per_round, parts = mapping.row_tiles_per_round, mapping.row_parts(shape)
    tiles = deal_rows(product, parts, shape)
    nonzeros = _tile_nonzeros(product, tiles.first_row, tiles.rows)
    rounds = row_rounds(int(np.diff(tiles.part_first).max()), per_round)
    by_batch = np.zeros((rounds, product.k_tiles, parts, per_round), dtype=np.int64)
    numbers = np.full((rounds, parts, per_round), -1, dtype=np.int64)
    for part in range(parts):
        mine = np.arange(tiles.part_first[part], tiles.part_first[part + 1])
        place = np.arange(mine.size)
        by_batch[place // per_round, :, part, place % per_round] = nonzeros[mine]
        numbers[place // per_round, part, place % per_round] = mine
    return DealtBatches(numbers, by_batch)


def order_steps(mapping: OutputStationaryMapping, product: TiledProduct) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """By column round: up to which place k_tiles hold a block of it (at least 1), and all k_tiles in order."""
    orders = mapping.k_orders(product.present)
    steps = np.ones(len(orders), dtype=np.int64)
    for number, order in enumerate(orders):
        used = np.flatnonzero(product.present[mapping.round_of == number].any(axis=0)[order])
        steps[number] = 1 + (int(used[-1]) if used.size else 0)
    return steps, orders


class _SplitKBuilder(_Builder):
    def build(self, mapping: SplitKMapping) -> ProductIndex:
        product, shape = self.product, self.shape
        column_sizes = size_bytes(product.parallel.tile_nonzeros, shape).T
        row_sizes = size_bytes(product.serial.tile_nonzeros, shape).T
        parallel = self._append_entries(column_sizes)
        by_round = np.lexsort((np.arange(mapping.round_of.size), mapping.round_of))
        self.append("owners_at", _output_words(mapping, by_round))
        first = np.searchsorted(mapping.round_of[by_round], np.arange(mapping.rounds + 1)).astype(np.int64)
        last_group, last_row = divmod(product.k_tiles - 1, shape.mesh_rows)
        group_columns = shape.mesh_columns // mapping.split
        last = last_row | last_group % mapping.split * group_columns << 8
        self.append("orders_at", np.concatenate((first, [last])))
        counted = column_sizes > 0 if not self.direct else np.asarray(flits_of(column_sizes))
        firsts = np.stack([_first_of_rows(np.asarray(flits_of(row_sizes))), _first_of_rows(counted)], axis=1)
        self.append("batches_at", np.concatenate((firsts, _four_a_word(column_sizes), _four_a_word(row_sizes)), axis=1))
        self.append("mask_at", np.zeros(0, dtype=np.int64))
        fields = {
            "split_k": True,
            "policy": "stored",
            "column_rounds": mapping.rounds,
            "row_rounds": 1,
            "row_tiles": 0,
            "group_columns": group_columns,
            "columns_per_round": 0,
            "batch_stride": split_k_batch_words(product.parallel.tiles, product.serial.tiles),
            "masked": False,  # the output tiles are listed
        }
        numbers = np.broadcast_to(np.arange(product.serial.tiles), row_sizes.shape)[None, :, None]
        return self.finish(fields, (_addresses(row_sizes[None, :, None], numbers), parallel))

    def _append_entries(self, column_sizes: Sizes) -> dict[tuple[int, int], int]:
        """Where blocks lie: nothing to store if they lie by k_tile; the address of every tile."""
        by_k, columns = np.nonzero(column_sizes)
        flits = np.asarray(flits_of(column_sizes[by_k, columns]))
        stored = np.arange(by_k.size) if self.direct else np.lexsort((by_k, columns))
        address = np.zeros(by_k.size, dtype=np.int64)
        address[stored] = np.cumsum(flits[stored]) - flits[stored]
        self.append("slots_at", np.zeros(0, dtype=np.int64))
        self.append("entries_at", np.zeros(0, dtype=np.int64) if self.direct else address)
        places = zip(columns.tolist(), by_k.tolist(), strict=True)
        return dict(zip(places, address.tolist(), strict=True))


def row_rounds(most_tiles: int, row_tiles_per_round: int) -> int:
    """Batches of the part with the most row tiles."""
    return max(1, -(-most_tiles // row_tiles_per_round))


def batch_words(row_tiles: int) -> int:
    """Words of a batch of that many row tiles."""
    return 2 + -(-row_tiles // SIZES_PER_WORD)


def live_words(mapping: OutputStationaryMapping, shape: FabricShape) -> int:
    """Words before the batches of a k_tile that tell the mesh rows with data, by group."""
    return shape.mesh_columns // mapping.group_columns * row_bit_words(shape.mesh_rows)


def row_bit_words(mesh_rows: int) -> int:
    """Words of a bit for every mesh row."""
    return -(-mesh_rows // ROWS_PER_WORD)


def split_k_batch_words(column_tiles: int, row_tiles: int) -> int:
    """Words of a k_tile of a split-K product."""
    return 2 + -(-column_tiles // SIZES_PER_WORD) + -(-row_tiles // SIZES_PER_WORD)


def _columns_per_round(mapping: OutputStationaryMapping) -> int:
    """The most output columns of a cluster in a round."""
    filled = np.flatnonzero(mapping.round_of >= 0)
    owned = np.zeros((mapping.column_rounds, mapping.group_columns), dtype=np.int64)
    np.add.at(owned, (mapping.round_of[filled], mapping.column_of[filled]), 1)
    return max(1, int(owned.max(initial=0)))


def _order_words(mapping: OutputStationaryMapping, product: TiledProduct) -> NDArray[np.int64]:
    """By round the number of k_tiles that are sent, and all k_tiles in order."""
    steps, orders = order_steps(mapping, product)
    return np.concatenate((steps[:, None], orders), axis=1)


def _owner_words(mapping: OutputStationaryMapping) -> NDArray[np.int64]:
    places = np.zeros(mapping.round_of.size, dtype=np.int64)
    taken: dict[tuple[int, int], int] = {}
    for column, key in enumerate(zip(mapping.round_of.tolist(), mapping.column_of.tolist(), strict=True)):
        if key[0] >= 0:
            places[column] = taken.get(key, 0)
            taken[key] = int(places[column]) + 1
    return mapping.column_of | places << 8 | (mapping.round_of & EMPTY_ROUND) << 16


def _output_words(mapping: SplitKMapping, by_round: NDArray[np.int64]) -> NDArray[np.int64]:
    """Two words for every output tile in order of rounds, then of rows."""
    rounds, owners = mapping.round_of[by_round], mapping.column_of[by_round]
    rows, columns = mapping.output_rows[by_round], mapping.output_columns[by_round]
    numbers = np.zeros(by_round.size, dtype=np.int64)
    keys = np.stack((rounds, owners, columns), axis=1)
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    if len(distinct):
        begins = np.concatenate(([True], (distinct[1:, :2] != distinct[:-1, :2]).any(axis=1)))
        first = np.maximum.accumulate(np.where(begins, np.arange(len(distinct)), 0))
        numbers = (np.arange(len(distinct)) - first)[inverse.reshape(-1)]
    return np.stack((rows | columns << 16, owners | numbers << 8), axis=1)


def _tile_nonzeros(product: TiledProduct, first_row: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Non-zeros of serial tiles that begin at any row, int64 ``[tiles, k_tiles]``."""
    counts = product.serial.row_nonzeros.astype(np.int64)
    before = np.concatenate((np.zeros((1, counts.shape[1]), dtype=np.int64), np.cumsum(counts, axis=0)))
    return np.asarray(before[first_row + rows] - before[first_row])


def _batch_words(sizes: Sizes, tiles: NDArray[np.int64]) -> NDArray[np.int64]:
    """Batches of ``sizes [..., row tiles]`` that hold ``tiles [...]``: first flit, counts, sizes four to a word."""
    flits = np.asarray(flits_of(sizes)).sum(axis=-1)
    first = (np.cumsum(flits) - flits.reshape(-1)).reshape(flits.shape)
    last = ((sizes > 0) * np.arange(1, sizes.shape[-1] + 1)).max(axis=-1, initial=0)
    counts = np.broadcast_to(tiles, flits.shape) | np.minimum(last, 255) << 8
    return np.concatenate((first[..., None], counts[..., None], _four_a_word(sizes)), axis=-1)


def _live_rows(sizes: Sizes, mesh_rows: int) -> NDArray[np.int64]:
    """Of ``sizes [row rounds, k_tiles, parts, row tiles]`` the mesh rows with data: bits by group, 32 rows a word."""
    rounds, k_tiles, parts, _ = sizes.shape
    words = row_bit_words(mesh_rows)
    live = (sizes > 0).any(axis=-1).reshape(rounds, k_tiles, mesh_rows, parts // mesh_rows).swapaxes(2, 3)
    padded = np.pad(live, ((0, 0), (0, 0), (0, 0), (0, words * ROWS_PER_WORD - mesh_rows)))
    bits = padded.reshape(rounds, k_tiles, -1, ROWS_PER_WORD).astype(np.int64)
    found: NDArray[np.int64] = (bits << np.arange(ROWS_PER_WORD)).sum(axis=-1)
    return found


def _four_a_word(sizes: Sizes) -> NDArray[np.int64]:
    """Size bytes ``[..., tiles]``, four to a word."""
    padded = np.pad(sizes, [(0, 0)] * (sizes.ndim - 1) + [(0, -sizes.shape[-1] % SIZES_PER_WORD)])
    four = padded.reshape(*padded.shape[:-1], -1, SIZES_PER_WORD)
    words: NDArray[np.int64] = (four << (8 * np.arange(SIZES_PER_WORD))).sum(axis=-1)
    return words


def _first_of_rows(counts: NDArray[Any]) -> NDArray[np.int64]:
    """What lies before every row of ``counts [rows, columns]``."""
    totals = counts.sum(axis=1, dtype=np.int64)
    return np.asarray(np.cumsum(totals) - totals)


def _addresses(sizes: Sizes, numbers: NDArray[np.int64]) -> dict[tuple[int, int], int]:
    """First flit of every stored tile of ``sizes [rounds, k_tiles, parts, row tiles]``, by (tile, k_tile)."""
    flits = np.asarray(flits_of(sizes)).reshape(-1)
    first = np.cumsum(flits) - flits
    k_tiles = np.broadcast_to(np.arange(sizes.shape[1])[None, :, None, None], sizes.shape).reshape(-1)
    stored = np.flatnonzero(flits)
    flat = numbers.reshape(-1)
    return {(int(flat[at]), int(k_tiles[at])): int(first[at]) for at in stored}
