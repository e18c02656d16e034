"""The packets of a program while they are filled, compiled: what they carry, how long it takes, who takes it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled, inlined

Patterns = NDArray[np.unsignedinteger]


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
    def empty(cls, packets: int, items: int, mesh_columns: int, units: int) -> "Packets":
        """Room for so many packets and items."""
        return cls(
            np.zeros(packets, dtype=np.uint8),
            np.zeros(packets, dtype=np.int32),
            np.zeros(packets, dtype=np.int32),
            np.zeros(packets, dtype=np.uint64),
            np.zeros(packets, dtype=np.int32),
            np.zeros(packets, dtype=np.int32),
            np.zeros(packets, dtype=np.int32),
            np.zeros((packets, mesh_columns), dtype=np.uint32),
            np.zeros(packets + 1, dtype=np.int64),
            np.zeros((items, units), dtype=np.int32),
        )


class Operands(NamedTuple):
    """What the packets carry: zero patterns of the serial operand and counts of the parallel one.

    ``patterns [rows, steps]``; ``tile_nonzeros [tiles, steps]`` of the parallel operand; ``depth_cycles [tiles, steps,
    tile]``: cycles of a non-zero at each position of a piece, and ``same_cycles [tiles, steps]``: that number where it
    is one for all positions, else -1. ``whole_rows``: zeros of the serial operand take time, too.
    """

    patterns: Patterns
    tile_nonzeros: NDArray[np.int64]
    depth_cycles: NDArray[np.uint8]
    same_cycles: NDArray[np.int8]
    whole_rows: bool
    tile: int


class Sizes(NamedTuple):
    """Of the fabric, as plain numbers."""

    mesh_rows: int
    mesh_columns: int
    units: int
    tile: int
    link_bytes: int
    by_columns: bool


@compiled
def payload_flits(nonzeros: int, sizes: Sizes) -> int:
    """Flits of a piece: its non-zero bf16 values and where they are, or all its values where that is shorter.

    Where they are is a bit per value; or, by columns, half a byte per non-zero (5 bits in tiles of 32) and a byte per
    column.
    """
    tile = sizes.tile
    places = tile * tile // 8
    if sizes.by_columns:
        places = -(-nonzeros * (5 if tile > 16 else 4) // 8) + tile
    return -(-min(2 * nonzeros + places, 2 * tile * tile) // sizes.link_bytes)


@compiled
def count_bits(bits: np.unsignedinteger) -> int:
    """Set bits of up to 64: pairs, nibbles and bytes are added in place."""
    value = np.uint64(bits)
    value = value - ((value >> np.uint64(1)) & np.uint64(0x5555555555555555))
    value = (value & np.uint64(0x3333333333333333)) + ((value >> np.uint64(2)) & np.uint64(0x3333333333333333))
    value = (value + (value >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((value * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def add_cycles(operands: Operands, first: int, rows: int, depth: int, column: int, cycles: NDArray[np.int32]) -> None:
    """Add to ``cycles [units]`` what rows ``first``, ... of the serial operand take against one parallel piece."""
    same = operands.same_cycles[column, depth]
    for row in range(rows):
        unit = row % cycles.size
        if operands.whole_rows:
            cycles[unit] += operands.tile * same
            continue
        bits = np.uint32(operands.patterns[first + row, depth])
        if same >= 0:
            cycles[unit] += count_bits(bits) * same
            continue
        position = 0
        while bits:
            if bits & np.uint32(1):
                cycles[unit] += operands.depth_cycles[column, depth, position]
            bits >>= np.uint32(1)
            position += 1


@compiled
def nonzeros_of(operands: Operands, first: int, rows: int, depth: int) -> int:
    """Non-zeros of one serial piece."""
    nonzeros = 0
    for row in range(rows):
        nonzeros += count_bits(operands.patterns[first + row, depth])
    return nonzeros


@compiled
def write_packet(
    packets: Packets,
    packet: int,
    kind: int,
    place: tuple[int, int, int, int],
    flits: int,
    destinations: np.uint64,
    first_item: int,
) -> None:
    """Fill in one packet; ``place`` is its step, round, row among pieces, and depth."""
    packets.kind[packet] = kind
    packets.k_step[packet], packets.round[packet], packets.row_tile[packet], packets.k_tile[packet] = place
    packets.flits[packet] = flits
    packets.destinations[packet] = destinations
    packets.item_first[packet] = first_item


@inlined
def taker(mesh_line: int) -> np.uint64:
    """The bit of one line of clusters among a packet's destinations."""
    return np.uint64(1) << np.uint64(mesh_line)


@inlined
def takes(destinations: np.uint64, mesh_line: int) -> bool:
    """Whether a line of clusters is among ``destinations``."""
    return bool((destinations >> np.uint64(mesh_line)) & np.uint64(1))


@compiled
def meet(
    packets: Packets, packet: int, mesh_column: int, rank: int, operands: Operands, rows: tuple[int, int], block: int
) -> None:
    """A serial packet meets a block, the ``rank``-th of its step there; ``rows`` are its first row and how many."""
    packets.parallel_tiles[packet, mesh_column] |= np.uint32(1) << np.uint32(rank)
    item = packets.item_first[packet]
    item += count_bits(packets.destinations[packet] & (taker(mesh_column) - np.uint64(1)))
    add_cycles(operands, rows[0], rows[1], packets.k_tile[packet], block, packets.item_cycles[item])
