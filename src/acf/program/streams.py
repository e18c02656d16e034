"""Filling the packets of a program, compiled: counted first, written second, in the same loops."""

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
from acf.program.program import PARALLEL, SERIAL

Arrays = tuple[
    NDArray[np.uint8],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.uint64],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.uint8],
    NDArray[np.uint16],
    NDArray[np.uint32],
]
"""kind, step, flits, takers, row, depth, round, row_nonzeros, row_cycles, blocks of a stream (`acf.program.Stream`)."""


def empty_arrays(packets: int, tile: int, mesh_columns: int) -> Arrays:
    """Arrays of a stream before they are filled."""
    return (
        np.zeros(packets, dtype=np.uint8),
        np.zeros(packets, dtype=np.int32),
        np.zeros(packets, dtype=np.int32),
        np.zeros(packets, dtype=np.uint64),
        np.zeros(packets, dtype=np.int32),
        np.zeros(packets, dtype=np.int32),
        np.zeros(packets, dtype=np.int32),
        np.zeros((packets, tile), dtype=np.uint8),
        np.zeros((packets, mesh_columns), dtype=np.uint16),
        np.zeros((packets, mesh_columns), dtype=np.uint32),
    )


@compiled
def payload_flits(nonzeros: int, tile: int, link_bytes: int) -> int:
    """Flits of a piece: a bit per value and the non-zero bf16 values, or all values where that is shorter."""
    payload = min(2 * nonzeros + tile * tile // 8, 2 * tile * tile)
    return -(-payload // link_bytes)


@compiled
def token_packets(
    row_nonzeros: NDArray[np.uint8],
    piece_first: NDArray[np.int64],
    piece_rows: NDArray[np.int32],
    part_first: NDArray[np.int64],
    tile_nonzeros: NDArray[np.int64],
    row_cycles: NDArray[np.int64],
    needed: NDArray[np.bool_],
    group_of: NDArray[np.int64],
    round_of: NDArray[np.int64],
    groups: int,
    batch: int,
    batches: int,
    column_rounds: int,
    mesh_rows: int,
    mesh_columns: int,
    tile: int,
    link_bytes: int,
    cursor: NDArray[np.int64],
    write: bool,
    rows: Arrays,
    columns: Arrays,
) -> None:
    """Packets when output rows are spread over the mesh; ``cursor [mesh_rows + mesh_columns]`` moves past them.

    ``row_nonzeros [rows, steps]`` of the serial operand, ``tile_nonzeros [columns, steps]`` of the parallel one;
    ``needed [row pieces, column pieces]``, or no rows where all are.
    """
    steps = row_nonzeros.shape[1]
    output_columns = tile_nonzeros.shape[0]
    parts_per_row = mesh_columns // groups
    cycles = np.zeros(mesh_columns, dtype=np.int64)
    arrived = np.zeros(mesh_columns, dtype=np.int64)
    used = np.zeros((mesh_rows, parts_per_row, output_columns), dtype=np.bool_)
    everything = needed.shape[0] == 0
    for column_round in range(column_rounds):
        for index in range(batches):
            round_number = column_round * batches + index
            for depth in range(steps):
                step = round_number * steps + depth
                used[:] = False
                sent = False
                before = cursor[:mesh_rows].copy()
                for mesh_row in range(mesh_rows):
                    for part_in_row in range(parts_per_row):
                        part = mesh_row * parts_per_row + part_in_row
                        begin = part_first[part] + index * batch
                        end = min(part_first[part + 1], begin + batch)
                        for piece in range(begin, end):
                            nonzeros = 0
                            for row in range(piece_rows[piece]):
                                nonzeros += row_nonzeros[piece_first[piece] + row, depth]
                            if nonzeros == 0:
                                continue
                            cycles[:] = 0
                            tile_row = piece_first[piece] // tile
                            for column in range(output_columns):
                                if (
                                    round_of[column] == column_round
                                    and tile_nonzeros[column, depth] > 0
                                    and (everything or needed[tile_row, column])
                                ):
                                    cycles[group_of[column]] += row_cycles[column]
                                    used[mesh_row, part_in_row, column] = True
                            takers = np.uint64(0)
                            for group in range(groups):
                                if cycles[group]:
                                    takers |= np.uint64(1) << np.uint64(part_in_row * groups + group)
                            if not takers:
                                continue
                            sent = True
                            if write:
                                place = cursor[mesh_row]
                                rows[0][place] = SERIAL
                                rows[1][place] = step
                                rows[2][place] = payload_flits(nonzeros, tile, link_bytes)
                                rows[3][place] = takers
                                rows[4][place] = piece
                                rows[5][place] = depth
                                rows[6][place] = round_number
                                for row in range(piece_rows[piece]):
                                    rows[7][place, row] = row_nonzeros[piece_first[piece] + row, depth]
                                for group in range(groups):
                                    rows[8][place, part_in_row * groups + group] = cycles[group]
                            cursor[mesh_row] += 1
                if not sent:
                    continue
                for column in range(output_columns):
                    for part_in_row in range(parts_per_row):
                        takers = np.uint64(0)
                        for mesh_row in range(mesh_rows):
                            if used[mesh_row, part_in_row, column]:
                                takers |= np.uint64(1) << np.uint64(mesh_row)
                        if not takers:
                            continue
                        mesh_column = part_in_row * groups + group_of[column]
                        if write:
                            place = cursor[mesh_rows + mesh_column]
                            columns[0][place] = PARALLEL
                            columns[1][place] = step
                            columns[2][place] = payload_flits(tile_nonzeros[column, depth], tile, link_bytes)
                            columns[3][place] = takers
                            columns[4][place] = column
                            columns[5][place] = depth
                            columns[6][place] = round_number
                        cursor[mesh_rows + mesh_column] += 1
                if not write:
                    continue
                for mesh_row in range(mesh_rows):  # which of the blocks that arrive in this step a packet meets
                    for place in range(before[mesh_row], cursor[mesh_row]):
                        tile_row = piece_first[rows[4][place]] // tile
                        arrived[:] = 0
                        for column in range(output_columns):
                            for part_in_row in range(parts_per_row):
                                if not used[mesh_row, part_in_row, column]:
                                    continue
                                mesh_column = part_in_row * groups + group_of[column]
                                takes = (rows[3][place] >> np.uint64(mesh_column)) & np.uint64(1)
                                if takes and (everything or needed[tile_row, column]):
                                    rows[9][place, mesh_column] |= np.uint32(1) << np.uint32(arrived[mesh_column])
                                arrived[mesh_column] += 1


@compiled
def reduction_packets(
    serial_nonzeros: NDArray[np.int64],
    row_nonzeros: NDArray[np.uint8],
    tile_nonzeros: NDArray[np.int64],
    row_cycles: NDArray[np.int64],
    output_rows: NDArray[np.int64],
    output_columns: NDArray[np.int64],
    column_of: NDArray[np.int64],
    round_first: NDArray[np.int64],
    split: int,
    mesh_rows: int,
    mesh_columns: int,
    tile: int,
    link_bytes: int,
    cursor: NDArray[np.int64],
    write: bool,
    rows: Arrays,
) -> None:
    """Packets when the reduction is spread over the mesh; ``cursor [mesh_rows]`` moves past them.

    Output pieces are sorted by round; round ``n`` has those from ``round_first[n]`` up to ``round_first[n + 1]``.
    """
    steps = row_nonzeros.shape[1]
    groups = mesh_columns // split
    spread = mesh_rows * split
    local_steps = -(-steps // spread)
    cycles = np.zeros((serial_nonzeros.shape[0], groups), dtype=np.int64)
    wanted = np.zeros(serial_nonzeros.shape[0], dtype=np.bool_)
    takers_of = np.zeros(tile_nonzeros.shape[0], dtype=np.uint64)
    blocks = np.zeros((serial_nonzeros.shape[0], groups), dtype=np.uint32)
    rank = np.zeros((tile_nonzeros.shape[0], groups), dtype=np.int64)
    arrived = np.zeros(groups, dtype=np.int64)
    for round_number in range(round_first.size - 1):
        pieces = range(round_first[round_number], round_first[round_number + 1])
        for local in range(local_steps):
            step = round_number * local_steps + local
            for mesh_row in range(mesh_rows):
                for part in range(split):
                    depth = (local * split + part) * mesh_rows + mesh_row
                    if depth >= steps:
                        continue
                    for piece in pieces:
                        row, column = output_rows[piece], output_columns[piece]
                        if serial_nonzeros[row, depth] > 0 and tile_nonzeros[column, depth] > 0:
                            wanted[row] = True
                            cycles[row, column_of[piece]] += row_cycles[column]
                            takers_of[column] |= np.uint64(1) << np.uint64(part * groups + column_of[piece])
                    for piece in pieces:
                        column = output_columns[piece]
                        if takers_of[column]:
                            if write:
                                place = cursor[mesh_row]
                                rows[0][place] = PARALLEL
                                rows[1][place] = step
                                rows[2][place] = payload_flits(tile_nonzeros[column, depth], tile, link_bytes)
                                rows[3][place] = takers_of[column]
                                rows[4][place] = column
                                rows[5][place] = depth
                                rows[6][place] = round_number
                            cursor[mesh_row] += 1
                            for group in range(groups):
                                if (takers_of[column] >> np.uint64(part * groups + group)) & np.uint64(1):
                                    rank[column, group] = arrived[group]
                                    arrived[group] += 1
                            takers_of[column] = np.uint64(0)
                    arrived[:] = 0
                    for piece in pieces:
                        row, column, group = output_rows[piece], output_columns[piece], column_of[piece]
                        if serial_nonzeros[row, depth] > 0 and tile_nonzeros[column, depth] > 0:
                            blocks[row, group] |= np.uint32(1) << np.uint32(rank[column, group])
                    for piece in pieces:
                        row = output_rows[piece]
                        if not wanted[row]:
                            continue
                        if write:
                            place = cursor[mesh_row]
                            rows[0][place] = SERIAL
                            rows[1][place] = step
                            rows[2][place] = payload_flits(serial_nonzeros[row, depth], tile, link_bytes)
                            rows[4][place] = row
                            rows[5][place] = depth
                            rows[6][place] = round_number
                            takers = np.uint64(0)
                            for group in range(groups):
                                if cycles[row, group]:
                                    takers |= np.uint64(1) << np.uint64(part * groups + group)
                                    rows[8][place, part * groups + group] = cycles[row, group]
                                    rows[9][place, part * groups + group] = blocks[row, group]
                            rows[3][place] = takers
                            for unit_row in range(min(tile, row_nonzeros.shape[0] - row * tile)):
                                rows[7][place, unit_row] = row_nonzeros[row * tile + unit_row, depth]
                        cursor[mesh_row] += 1
                        wanted[row] = False
                        cycles[row, :] = 0
                        blocks[row, :] = np.uint32(0)
