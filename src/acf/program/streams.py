"""Filling the packets of a program, compiled: counted first, written second, in the same loops."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
from acf.program.program import PARALLEL, SERIAL

Patterns = NDArray[np.unsignedinteger]


class Packets(NamedTuple):
    """The arrays of a stream (`acf.program.Stream`) while they are filled."""

    kind: NDArray[np.uint8]
    step: NDArray[np.int32]
    flits: NDArray[np.int32]
    takers: NDArray[np.uint64]
    row: NDArray[np.int32]
    depth: NDArray[np.int32]
    round: NDArray[np.int32]
    blocks: NDArray[np.uint32]
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
    """Set bits of a pattern of up to 32: pairs, nibbles and bytes are added in place."""
    value = np.uint64(bits)
    value = value - ((value >> np.uint64(1)) & np.uint64(0x55555555))
    value = (value & np.uint64(0x33333333)) + ((value >> np.uint64(2)) & np.uint64(0x33333333))
    value = (value + (value >> np.uint64(4))) & np.uint64(0x0F0F0F0F)
    return int(((value * np.uint64(0x01010101)) >> np.uint64(24)) & np.uint64(0xFF))


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
    takers: np.uint64,
    first_item: int,
) -> None:
    """Fill in one packet; ``place`` is its step, round, row among pieces, and depth."""
    packets.kind[packet] = kind
    packets.step[packet], packets.round[packet], packets.row[packet], packets.depth[packet] = place
    packets.flits[packet] = flits
    packets.takers[packet] = takers
    packets.item_first[packet] = first_item


@compiled
def meet(
    packets: Packets, packet: int, mesh_column: int, rank: int, operands: Operands, rows: tuple[int, int], block: int
) -> None:
    """A serial packet meets a block, the ``rank``-th of its step there; ``rows`` are its first row and how many."""
    packets.blocks[packet, mesh_column] |= np.uint32(1) << np.uint32(rank)
    item = packets.item_first[packet]
    for other in range(mesh_column):
        item += (packets.takers[packet] >> np.uint64(other)) & np.uint64(1) > 0
    add_cycles(operands, rows[0], rows[1], packets.depth[packet], block, packets.item_cycles[item])


@compiled
def token_packets(
    operands: Operands,
    sizes: Sizes,
    piece_first: NDArray[np.int64],
    piece_rows: NDArray[np.int32],
    part_first: NDArray[np.int64],
    needed: NDArray[np.bool_],
    group_of: NDArray[np.int64],
    round_of: NDArray[np.int64],
    orders: NDArray[np.int64],
    groups: int,
    batch: int,
    batches: int,
    column_rounds: int,
    cursor: NDArray[np.int64],
    item_cursor: NDArray[np.int64],
    write: bool,
    rows: Packets,
    columns: Packets,
) -> None:
    """Packets when output rows are spread over the mesh; the cursors move past them, one per controller.

    ``needed [row pieces, column pieces]``, or without rows where all are. ``cursor [mesh_rows + mesh_columns]``,
    ``item_cursor [mesh_rows]``. ``orders [column_rounds, steps]``: the order of the reduction.
    """
    steps = operands.patterns.shape[1]
    output_columns = operands.tile_nonzeros.shape[0]
    parts_per_row = sizes.mesh_columns // groups
    met = np.zeros(groups, dtype=np.bool_)
    arrived = np.zeros(groups, dtype=np.int64)
    used = np.zeros((sizes.mesh_rows, parts_per_row, output_columns), dtype=np.bool_)
    everything = needed.shape[0] == 0
    present = np.zeros(output_columns, dtype=np.int64)
    for column_round in range(column_rounds):
        for index in range(batches):
            round_number = column_round * batches + index
            for place in range(steps):
                depth = orders[column_round, place]
                step = round_number * steps + place
                found = 0
                for column in range(output_columns):
                    if round_of[column] == column_round and operands.tile_nonzeros[column, depth] > 0:
                        present[found] = column
                        found += 1
                if found == 0:
                    continue
                used[:] = False
                sent = False
                before = cursor[: sizes.mesh_rows].copy()
                for mesh_row in range(sizes.mesh_rows):
                    for part_in_row in range(parts_per_row):
                        part = mesh_row * parts_per_row + part_in_row
                        begin = part_first[part] + index * batch
                        end = min(part_first[part + 1], begin + batch)
                        for piece in range(begin, end):
                            first, count = piece_first[piece], piece_rows[piece]
                            nonzeros = nonzeros_of(operands, first, count, depth)
                            if nonzeros == 0:
                                continue
                            met[:] = False
                            for index_present in range(found):
                                column = present[index_present]
                                if everything or needed[first // sizes.tile, column]:
                                    met[group_of[column]] = True
                                    used[mesh_row, part_in_row, column] = True
                            takers, items = np.uint64(0), 0
                            for group in range(groups):
                                if met[group]:
                                    takers |= np.uint64(1) << np.uint64(part_in_row * groups + group)
                                    items += 1
                            if items == 0:
                                continue
                            sent = True
                            if write:
                                place_of = (step, round_number, piece, depth)
                                flits = payload_flits(nonzeros, sizes)
                                write_packet(
                                    rows, cursor[mesh_row], SERIAL, place_of, flits, takers, item_cursor[mesh_row]
                                )
                            cursor[mesh_row] += 1
                            item_cursor[mesh_row] += items
                if not sent:
                    continue
                for index_present in range(found):
                    column = present[index_present]
                    for part_in_row in range(parts_per_row):
                        takers = np.uint64(0)
                        for mesh_row in range(sizes.mesh_rows):
                            if used[mesh_row, part_in_row, column]:
                                takers |= np.uint64(1) << np.uint64(mesh_row)
                        if not takers:
                            continue
                        line = sizes.mesh_rows + part_in_row * groups + group_of[column]
                        if write:
                            flits = payload_flits(operands.tile_nonzeros[column, depth], sizes)
                            place_of = (step, round_number, column, depth)
                            write_packet(columns, cursor[line], PARALLEL, place_of, flits, takers, 0)
                        cursor[line] += 1
                if not write:
                    continue
                for mesh_row in range(sizes.mesh_rows):  # what every packet of the step meets, and what that costs
                    for packet in range(before[mesh_row], cursor[mesh_row]):
                        piece = rows.row[packet]
                        first, count = piece_first[piece], piece_rows[piece]
                        part_in_row = 0
                        while piece >= part_first[mesh_row * parts_per_row + part_in_row + 1]:
                            part_in_row += 1
                        arrived[:] = 0
                        for index_present in range(found):
                            column = present[index_present]
                            if not used[mesh_row, part_in_row, column]:
                                continue
                            group = group_of[column]
                            rank = arrived[group]
                            arrived[group] += 1
                            if not everything and not needed[first // sizes.tile, column]:
                                continue
                            mesh_column = part_in_row * groups + group
                            meet(rows, packet, mesh_column, rank, operands, (first, count), column)


@compiled
def reduction_packets(
    operands: Operands,
    sizes: Sizes,
    output_rows: NDArray[np.int64],
    output_columns: NDArray[np.int64],
    column_of: NDArray[np.int64],
    round_first: NDArray[np.int64],
    split: int,
    cursor: NDArray[np.int64],
    item_cursor: NDArray[np.int64],
    write: bool,
    rows: Packets,
) -> None:
    """Packets when the reduction is spread over the mesh; the cursors ``[mesh_rows]`` move past them.

    Output pieces are sorted by round; round ``n`` has those from ``round_first[n]`` up to ``round_first[n + 1]``.
    """
    steps = operands.patterns.shape[1]
    tile = sizes.tile
    groups = sizes.mesh_columns // split
    local_steps = -(-steps // (sizes.mesh_rows * split))
    serial_tiles = -(-operands.patterns.shape[0] // tile)
    nonzeros = np.zeros(serial_tiles, dtype=np.int64)
    known = np.full(serial_tiles, -1, dtype=np.int64)
    packet_of = np.full(serial_tiles, -1, dtype=np.int64)
    takers_of_row = np.zeros(serial_tiles, dtype=np.uint64)
    takers_of = np.zeros(operands.tile_nonzeros.shape[0], dtype=np.uint64)
    rank = np.zeros((operands.tile_nonzeros.shape[0], groups), dtype=np.int64)
    arrived = np.zeros(groups, dtype=np.int64)
    visit = 0
    for round_number in range(round_first.size - 1):
        begin, end = round_first[round_number], round_first[round_number + 1]
        for local in range(local_steps):
            step = round_number * local_steps + local
            for mesh_row in range(sizes.mesh_rows):
                for part in range(split):
                    depth = (local * split + part) * sizes.mesh_rows + mesh_row
                    if depth >= steps:
                        continue
                    visit += 1
                    for piece in range(begin, end):
                        row, column = output_rows[piece], output_columns[piece]
                        if known[row] != visit:
                            known[row] = visit
                            count = min(tile, operands.patterns.shape[0] - row * tile)
                            nonzeros[row] = nonzeros_of(operands, row * tile, count, depth)
                            takers_of_row[row] = np.uint64(0)
                            packet_of[row] = -1
                        if nonzeros[row] and operands.tile_nonzeros[column, depth] > 0:
                            bit = np.uint64(1) << np.uint64(part * groups + column_of[piece])
                            takers_of_row[row] |= bit
                            takers_of[column] |= bit
                    arrived[:] = 0
                    for piece in range(begin, end):  # parallel pieces first
                        column = output_columns[piece]
                        if not takers_of[column]:
                            continue
                        if write:
                            flits = payload_flits(operands.tile_nonzeros[column, depth], sizes)
                            place_of = (step, round_number, column, depth)
                            first_item = item_cursor[mesh_row]
                            write_packet(
                                rows, cursor[mesh_row], PARALLEL, place_of, flits, takers_of[column], first_item
                            )
                        cursor[mesh_row] += 1
                        for group in range(groups):
                            if (takers_of[column] >> np.uint64(part * groups + group)) & np.uint64(1):
                                rank[column, group] = arrived[group]
                                arrived[group] += 1
                        takers_of[column] = np.uint64(0)
                    for piece in range(begin, end):
                        row, column, group = output_rows[piece], output_columns[piece], column_of[piece]
                        if not takers_of_row[row]:
                            continue
                        mesh_column = part * groups + group
                        if packet_of[row] < 0:
                            packet_of[row] = cursor[mesh_row]
                            if write:
                                flits = payload_flits(nonzeros[row], sizes)
                                place_of = (step, round_number, row, depth)
                                first_item = item_cursor[mesh_row]
                                write_packet(
                                    rows, cursor[mesh_row], SERIAL, place_of, flits, takers_of_row[row], first_item
                                )
                            cursor[mesh_row] += 1
                            for other in range(sizes.mesh_columns):
                                item_cursor[mesh_row] += (takers_of_row[row] >> np.uint64(other)) & np.uint64(1) > 0
                        if write and operands.tile_nonzeros[column, depth] > 0:
                            count = min(tile, operands.patterns.shape[0] - row * tile)
                            rank_here = rank[column, group]
                            meet(rows, packet_of[row], mesh_column, rank_here, operands, (row * tile, count), column)
