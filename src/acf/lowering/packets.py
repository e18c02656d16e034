"""Packets while they are written, in numba: what a tile costs in flits and cycles, and which clusters receive it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled, inlined
from acf.lowering.fabric_shape import VALUE_BYTES, FabricShape
from acf.lowering.program import SERIAL
from acf.lowering.tiled_product import TiledProduct

Patterns = NDArray[np.unsignedinteger]
Lines = NDArray[np.int64]
"""A counter for every line of clusters, int64 ``[lines]``."""


class Packets(NamedTuple):
    """The arrays of a stream (`acf.lowering.Stream`) while they are filled."""

    kind: NDArray[np.uint8]
    k_step: NDArray[np.int32]
    flits: NDArray[np.int32]
    destinations: NDArray[np.uint64]
    row_tile: NDArray[np.int32]
    k_tile: NDArray[np.int32]
    round: NDArray[np.int32]
    parallel_tiles: NDArray[np.uint32]
    item_first: NDArray[np.int64]
    item_cycles: NDArray[np.int32]

    @classmethod
    def empty(cls, packets: int, items: int, shape: FabricShape) -> "Packets":
        """Arrays for so many packets and items, all zero."""
        return cls(
            kind=np.zeros(packets, dtype=np.uint8),
            k_step=np.zeros(packets, dtype=np.int32),
            flits=np.zeros(packets, dtype=np.int32),
            destinations=np.zeros(packets, dtype=np.uint64),
            row_tile=np.zeros(packets, dtype=np.int32),
            k_tile=np.zeros(packets, dtype=np.int32),
            round=np.zeros(packets, dtype=np.int32),
            parallel_tiles=np.zeros((packets, shape.mesh_columns), dtype=np.uint32),
            item_first=np.full(packets + 1, items, dtype=np.int64),
            item_cycles=np.zeros((items, shape.scus_per_cluster), dtype=np.int32),
        )


class Place(NamedTuple):
    """When a packet is sent, and which tile of its operand it carries."""

    k_step: int
    round: int
    row_tile: int
    k_tile: int


class PacketWriter(NamedTuple):
    """Where the next packet of every line goes. A first pass only counts (``writes`` False), a second one writes.

    ``next_packet`` and ``next_item``: int64 ``[lines]``, the number of the line's next packet and next item.
    """

    packets: Packets
    next_packet: Lines
    next_item: Lines
    writes: bool


class Operands(NamedTuple):
    """What the packets carry: zero patterns of the serial operand, costs of the parallel one.

    ``patterns [rows, k_tiles]``; ``tile_nonzeros [tiles, k_tiles]`` of the parallel operand; ``depth_cycles [tiles,
    k_tiles, tile]``: cycles of a streamed element at each depth of a parallel tile; ``same_cycles [tiles, k_tiles]``:
    that number where all depths have the same, else -1. ``streams_zeros``: zeros of the serial operand take time, too.
    """

    patterns: Patterns
    tile_nonzeros: NDArray[np.int64]
    depth_cycles: NDArray[np.uint8]
    same_cycles: NDArray[np.int8]
    streams_zeros: bool

    @classmethod
    def of(cls, product: TiledProduct, shape: FabricShape) -> "Operands":
        """The operands of a product on a fabric.

        A row of a parallel tile comes through a read port that ``scus_per_port`` SCUs share, so a streamed element
        takes at least that many cycles.
        """
        # One dtype for every tile size: the loops over packets are compiled once, not for each.
        patterns, parallel = product.serial.patterns.astype(np.uint32, copy=False), product.parallel
        if shape.skip != "both":
            at_least = np.maximum(-(-parallel.widths // shape.lanes), shape.scus_per_port)
            same = np.where(product.present, at_least[:, None], 0).astype(np.int8)
            no_depths = np.zeros((0, 0, 0), dtype=np.uint8)
            return cls(patterns, parallel.tile_nonzeros, no_depths, same, shape.skip == "gate")
        cycles = (parallel.depth_nonzeros + np.uint8(shape.lanes - 1)) // np.uint8(shape.lanes)
        cycles = np.maximum(cycles, np.uint8(shape.scus_per_port))
        same = np.where((cycles == cycles[:, :, :1]).all(axis=2), cycles[:, :, 0].astype(np.int8), np.int8(-1))
        return cls(patterns, parallel.tile_nonzeros, cycles, same, False)


class Sizes(NamedTuple):
    """The fabric's sizes as plain numbers; ``is_csc``: tiles travel in CSC instead of bitmap form."""

    mesh_rows: int
    mesh_columns: int
    tile: int
    link_bytes: int
    is_csc: bool

    @classmethod
    def of(cls, shape: FabricShape) -> "Sizes":
        """The sizes of ``shape``."""
        return cls(shape.mesh_rows, shape.mesh_columns, shape.tile, shape.link_bytes, shape.tile_format == "csc")


@compiled
def count_bits(bits: np.unsignedinteger) -> int:
    """Set bits of a word of up to 64 bits, summed in parallel over pairs, nibbles and bytes."""
    value = np.uint64(bits)
    value = value - ((value >> np.uint64(1)) & np.uint64(0x5555555555555555))
    value = (value & np.uint64(0x3333333333333333)) + ((value >> np.uint64(2)) & np.uint64(0x3333333333333333))
    value = (value + (value >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((value * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def payload_flits(nonzeros: int, sizes: Sizes) -> int:
    """Flits of a tile: its bf16 non-zeros and their positions, or all its elements where that is shorter.

    Positions are a bitmap; or, in CSC form, 4 bits per non-zero (5 in tiles of 32) and a byte per line
    (`acf.lowering.tile_format`).
    """
    tile = sizes.tile
    position_bytes = tile * tile // 8
    if sizes.is_csc:
        position_bytes = -(-nonzeros * (5 if tile > 16 else 4) // 8) + tile
    return -(-min(VALUE_BYTES * nonzeros + position_bytes, VALUE_BYTES * tile * tile) // sizes.link_bytes)


@inlined
def destination_bit(position: int) -> np.uint64:
    """The bit of the cluster at ``position`` along a line, among a packet's destinations."""
    return np.uint64(1) << np.uint64(position)


@inlined
def is_destination(destinations: np.uint64, position: int) -> bool:
    """Whether the cluster at ``position`` along a line is among ``destinations``."""
    return bool((destinations >> np.uint64(position)) & np.uint64(1))


@compiled
def emit(
    writer: PacketWriter, line: int, kind: int, place: Place, nonzeros: int, destinations: np.uint64, sizes: Sizes
) -> int:
    """Append a packet to a line and return its number; a serial packet is one item per destination."""
    packet: int = writer.next_packet[line]
    if writer.writes:
        packets = writer.packets
        packets.kind[packet] = kind
        packets.k_step[packet] = place.k_step
        packets.round[packet] = place.round
        packets.row_tile[packet] = place.row_tile
        packets.k_tile[packet] = place.k_tile
        packets.flits[packet] = payload_flits(nonzeros, sizes)
        packets.destinations[packet] = destinations
        packets.item_first[packet] = writer.next_item[line]
    writer.next_packet[line] += 1
    if kind == SERIAL:
        writer.next_item[line] += count_bits(destinations)
    return packet


@compiled
def nonzeros_of(operands: Operands, first: int, rows: int, k_tile: int) -> int:
    """Non-zeros of one serial tile."""
    nonzeros = 0
    for row in range(rows):
        nonzeros += count_bits(operands.patterns[first + row, k_tile])
    return nonzeros


@compiled
def add_cycles(
    operands: Operands, rows: tuple[int, int], k_tile: int, parallel_tile: int, sizes: Sizes, cycles: NDArray[np.int32]
) -> None:
    """Add to ``cycles [scus]`` what ``rows`` (first, count) of the serial operand take against one parallel tile."""
    first, count = rows
    same = operands.same_cycles[parallel_tile, k_tile]
    for row in range(count):
        scu = row % cycles.size
        if operands.streams_zeros:
            cycles[scu] += sizes.tile * same
            continue
        bits = np.uint32(operands.patterns[first + row, k_tile])
        if same >= 0:
            cycles[scu] += count_bits(bits) * same
            continue
        depth = 0
        while bits:
            if bits & np.uint32(1):
                cycles[scu] += operands.depth_cycles[parallel_tile, k_tile, depth]
            bits >>= np.uint32(1)
            depth += 1


@inlined
def meet(packets: Packets, packet: int, mesh_column: int, rank: int) -> NDArray[np.int32]:
    """Mark that a packet meets the ``rank``-th parallel tile of its k_step in a cluster; gives the item's cycles."""
    packets.parallel_tiles[packet, mesh_column] |= np.uint32(1) << np.uint32(rank)
    nearer = packets.destinations[packet] & (destination_bit(mesh_column) - np.uint64(1))
    cycles: NDArray[np.int32] = packets.item_cycles[packets.item_first[packet] + count_bits(nearer)]
    return cycles
