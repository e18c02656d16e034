"""Packets when the reduction is spread over the mesh: counted first, written second, in the same loops."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
from acf.lowering.packets import (
    Operands,
    Packets,
    Sizes,
    count_bits,
    meet,
    nonzeros_of,
    payload_flits,
    taker,
    takes,
    write_packet,
)
from acf.lowering.program import PARALLEL, SERIAL

Place = tuple[int, int, int, int, int]


class ReductionPlan(NamedTuple):
    """Which clusters sum which output pieces, and when.

    ``output_rows``, ``output_columns`` and ``column_of [pieces]``, sorted by round: round ``n`` has those from
    ``round_first[n]`` up to ``round_first[n + 1]``. ``split`` groups of mesh columns share a reduction.
    """

    output_rows: NDArray[np.int64]
    output_columns: NDArray[np.int64]
    column_of: NDArray[np.int64]
    round_first: NDArray[np.int64]
    split: int


class Visit(NamedTuple):
    """What is known while one depth is sent: of serial rows by tile, of parallel columns by output column.

    ``row_seen`` numbers the last visit to a row; where it is not this one, the rest of the row's entries are old.
    """

    row_seen: NDArray[np.int64]
    row_nonzeros: NDArray[np.int64]
    row_packet: NDArray[np.int64]
    row_takers: NDArray[np.uint64]
    column_takers: NDArray[np.uint64]
    column_rank: NDArray[np.int64]


@compiled
def rows_of(operands: Operands, sizes: Sizes, row: int) -> tuple[int, int]:
    """First row of a serial tile, and how many it has."""
    first = row * sizes.tile
    return first, min(sizes.tile, operands.patterns.shape[0] - first)


@compiled
def find_takers(operands: Operands, sizes: Sizes, plan: ReductionPlan, place: Place, number: int, visit: Visit) -> None:
    """Who takes the rows and columns of one depth; ``number`` is that of the visit."""
    _, round_number, depth, _, part = place
    for piece in range(plan.round_first[round_number], plan.round_first[round_number + 1]):
        row, column = plan.output_rows[piece], plan.output_columns[piece]
        if visit.row_seen[row] != number:
            visit.row_seen[row] = number
            first, count = rows_of(operands, sizes, row)
            visit.row_nonzeros[row] = nonzeros_of(operands, first, count, depth)
            visit.row_takers[row] = np.uint64(0)
            visit.row_packet[row] = -1
        if visit.row_nonzeros[row] and operands.tile_nonzeros[column, depth] > 0:
            bit = taker(part * (sizes.mesh_columns // plan.split) + plan.column_of[piece])
            visit.row_takers[row] |= bit
            visit.column_takers[column] |= bit


@compiled
def send_columns(
    operands: Operands,
    sizes: Sizes,
    plan: ReductionPlan,
    place: Place,
    visit: Visit,
    cursor: NDArray[np.int64],
    item_cursor: NDArray[np.int64],
    write: bool,
    packets: Packets,
) -> None:
    """The parallel packets of one depth, each once; their rank at every cluster is the order in which they come."""
    step, round_number, depth, mesh_row, part = place
    groups = sizes.mesh_columns // plan.split
    arrived = np.zeros(groups, dtype=np.int64)
    for piece in range(plan.round_first[round_number], plan.round_first[round_number + 1]):
        column = plan.output_columns[piece]
        destinations = visit.column_takers[column]
        if not destinations:
            continue
        if write:
            flits, first_item = payload_flits(operands.tile_nonzeros[column, depth], sizes), item_cursor[mesh_row]
            column_place = (step, round_number, column, depth)
            write_packet(packets, cursor[mesh_row], PARALLEL, column_place, flits, destinations, first_item)
        cursor[mesh_row] += 1
        for group in range(groups):
            if takes(destinations, part * groups + group):
                visit.column_rank[column, group] = arrived[group]
                arrived[group] += 1
        visit.column_takers[column] = np.uint64(0)


@compiled
def send_rows(
    operands: Operands,
    sizes: Sizes,
    plan: ReductionPlan,
    place: Place,
    visit: Visit,
    cursor: NDArray[np.int64],
    item_cursor: NDArray[np.int64],
    write: bool,
    packets: Packets,
) -> None:
    """The serial packets of one depth, each once, and what they meet."""
    step, round_number, depth, mesh_row, part = place
    groups = sizes.mesh_columns // plan.split
    for piece in range(plan.round_first[round_number], plan.round_first[round_number + 1]):
        row, column, group = plan.output_rows[piece], plan.output_columns[piece], plan.column_of[piece]
        destinations = visit.row_takers[row]
        if not destinations:
            continue
        if visit.row_packet[row] < 0:
            visit.row_packet[row] = cursor[mesh_row]
            if write:
                flits, first_item = payload_flits(visit.row_nonzeros[row], sizes), item_cursor[mesh_row]
                row_place = (step, round_number, row, depth)
                write_packet(packets, cursor[mesh_row], SERIAL, row_place, flits, destinations, first_item)
            cursor[mesh_row] += 1
            item_cursor[mesh_row] += count_bits(destinations)
        if write and operands.tile_nonzeros[column, depth] > 0:
            rank, rows = visit.column_rank[column, group], rows_of(operands, sizes, row)
            meet(packets, visit.row_packet[row], part * groups + group, rank, operands, rows, column)


@compiled
def reduction_packets(
    operands: Operands,
    sizes: Sizes,
    plan: ReductionPlan,
    cursor: NDArray[np.int64],
    item_cursor: NDArray[np.int64],
    write: bool,
    packets: Packets,
) -> None:
    """All packets; the cursors ``[mesh_rows]`` move past them. Parallel pieces of a depth come before serial ones."""
    steps, columns = operands.patterns.shape[1], operands.tile_nonzeros.shape[0]
    local_steps = -(-steps // (sizes.mesh_rows * plan.split))
    serial_tiles = -(-operands.patterns.shape[0] // sizes.tile)
    visit = Visit(
        np.full(serial_tiles, -1, dtype=np.int64),
        np.zeros(serial_tiles, dtype=np.int64),
        np.full(serial_tiles, -1, dtype=np.int64),
        np.zeros(serial_tiles, dtype=np.uint64),
        np.zeros(columns, dtype=np.uint64),
        np.zeros((columns, sizes.mesh_columns // plan.split), dtype=np.int64),
    )
    number = 0
    for round_number in range(plan.round_first.size - 1):
        for local in range(local_steps):
            step = round_number * local_steps + local
            for mesh_row in range(sizes.mesh_rows):
                for part in range(plan.split):
                    depth = (local * plan.split + part) * sizes.mesh_rows + mesh_row
                    if depth >= steps:
                        continue
                    place = (step, round_number, depth, mesh_row, part)
                    number += 1
                    find_takers(operands, sizes, plan, place, number, visit)
                    send_columns(operands, sizes, plan, place, visit, cursor, item_cursor, write, packets)
                    send_rows(operands, sizes, plan, place, visit, cursor, item_cursor, write, packets)
