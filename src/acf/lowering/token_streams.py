"""Packets when output rows are spread over the mesh: counted first, written second, in the same loops."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled, inlined
from acf.lowering.packets import (
    Operands,
    Packets,
    Sizes,
    count_bits,
    meet,
    nonzeros_of,
    payload_flits,
    taker,
    write_packet,
)
from acf.lowering.program import PARALLEL, SERIAL

Place = tuple[int, int, int, int]


class TokenPlan(NamedTuple):
    """Which line of clusters gets which pieces, and when.

    Serial pieces: ``tile_first_row`` and ``tile_rows [pieces]``, sorted by part of the rows, and ``part_first [parts +
    1]``; a mesh row has ``mesh_columns // groups`` parts. A round takes ``batch`` pieces of each part, in ``batches``
    rounds. Parallel pieces, one to an output column: ``group_of`` and ``round_of [output columns]``. ``needed [row
    pieces, output columns]``, or without rows where all are. ``orders [column rounds, steps]``: the order of the
    reduction.
    """

    tile_first_row: NDArray[np.int64]
    tile_rows: NDArray[np.int32]
    part_first: NDArray[np.int64]
    needed: NDArray[np.bool_]
    group_of: NDArray[np.int64]
    round_of: NDArray[np.int64]
    orders: NDArray[np.int64]
    groups: int
    batch: int
    batches: int


@inlined
def is_needed(plan: TokenPlan, sizes: Sizes, first_row: int, column: int) -> bool:
    """Whether the output of a serial piece and a column is wanted."""
    return plan.needed.shape[0] == 0 or bool(plan.needed[first_row // sizes.tile, column])


@compiled
def find_columns(operands: Operands, plan: TokenPlan, column_round: int, depth: int, present: NDArray[np.int64]) -> int:
    """Fill ``present`` with the output columns of a round that have non-zeros at ``depth``; gives their number."""
    found = 0
    for column in range(present.size):
        if plan.round_of[column] == column_round and operands.tile_nonzeros[column, depth] > 0:
            present[found] = column
            found += 1
    return found


@inlined
def find_takers(
    sizes: Sizes,
    plan: TokenPlan,
    first_row: int,
    mesh_row: int,
    part: int,
    columns: NDArray[np.int64],
    used: NDArray[np.bool_],
) -> np.uint64:
    """The clusters of a mesh row that want a serial piece for one of ``columns``, which become ``used``."""
    destinations = np.uint64(0)
    for column in columns:
        if is_needed(plan, sizes, first_row, column):
            destinations |= taker(part * plan.groups + plan.group_of[column])
            used[mesh_row, part, column] = True
    return destinations


@compiled
def send_rows(
    operands: Operands,
    sizes: Sizes,
    plan: TokenPlan,
    place: Place,
    columns: NDArray[np.int64],
    used: NDArray[np.bool_],
    cursor: NDArray[np.int64],
    item_cursor: NDArray[np.int64],
    write: bool,
    packets: Packets,
) -> None:
    """The serial packets of one step; ``place`` is the step, its round, the depth, and the batch of the round."""
    step, round_number, depth, batch = place
    parts = sizes.mesh_columns // plan.groups
    for mesh_row in range(sizes.mesh_rows):
        for part in range(parts):
            begin = plan.part_first[mesh_row * parts + part] + batch * plan.batch
            end = min(plan.part_first[mesh_row * parts + part + 1], begin + plan.batch)
            for piece in range(begin, end):
                first = plan.tile_first_row[piece]
                nonzeros = nonzeros_of(operands, first, plan.tile_rows[piece], depth)
                if nonzeros == 0:
                    continue
                destinations = find_takers(sizes, plan, first, mesh_row, part, columns, used)
                if not destinations:
                    continue
                if write:
                    flits, first_item = payload_flits(nonzeros, sizes), item_cursor[mesh_row]
                    piece_place = (step, round_number, piece, depth)
                    write_packet(packets, cursor[mesh_row], SERIAL, piece_place, flits, destinations, first_item)
                cursor[mesh_row] += 1
                item_cursor[mesh_row] += count_bits(destinations)


@compiled
def send_columns(
    operands: Operands,
    sizes: Sizes,
    plan: TokenPlan,
    place: Place,
    columns: NDArray[np.int64],
    used: NDArray[np.bool_],
    cursor: NDArray[np.int64],
    write: bool,
    packets: Packets,
) -> None:
    """The parallel packets of one step, to the mesh rows that use them; cursors of columns follow those of rows."""
    step, round_number, depth, _ = place
    for column in columns:
        for part in range(sizes.mesh_columns // plan.groups):
            destinations = np.uint64(0)
            for mesh_row in range(sizes.mesh_rows):
                if used[mesh_row, part, column]:
                    destinations |= taker(mesh_row)
            if not destinations:
                continue
            line = sizes.mesh_rows + part * plan.groups + plan.group_of[column]
            if write:
                flits = payload_flits(operands.tile_nonzeros[column, depth], sizes)
                write_packet(
                    packets, cursor[line], PARALLEL, (step, round_number, column, depth), flits, destinations, 0
                )
            cursor[line] += 1


@compiled
def meet_columns(
    operands: Operands,
    sizes: Sizes,
    plan: TokenPlan,
    columns: NDArray[np.int64],
    used: NDArray[np.bool_],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    packets: Packets,
) -> None:
    """What the serial packets of one step, from ``begin`` to ``end`` of each mesh row, meet, and what that costs."""
    parts = sizes.mesh_columns // plan.groups
    arrived = np.zeros(plan.groups, dtype=np.int64)
    for mesh_row in range(sizes.mesh_rows):
        for packet in range(begin[mesh_row], end[mesh_row]):
            piece = packets.row_tile[packet]
            first, count = plan.tile_first_row[piece], plan.tile_rows[piece]
            part = 0
            while piece >= plan.part_first[mesh_row * parts + part + 1]:
                part += 1
            arrived[:] = 0
            for column in columns:
                if not used[mesh_row, part, column]:
                    continue
                group = plan.group_of[column]
                rank = arrived[group]
                arrived[group] += 1
                if is_needed(plan, sizes, first, column):
                    meet(packets, packet, part * plan.groups + group, rank, operands, (first, count), column)


@compiled
def token_packets(
    operands: Operands,
    sizes: Sizes,
    plan: TokenPlan,
    cursor: NDArray[np.int64],
    item_cursor: NDArray[np.int64],
    write: bool,
    rows: Packets,
    columns: Packets,
) -> None:
    """All packets; ``cursor [mesh_rows + mesh_columns]`` and ``item_cursor [mesh_rows]`` move past them."""
    steps, output_columns = operands.patterns.shape[1], operands.tile_nonzeros.shape[0]
    used = np.zeros((sizes.mesh_rows, sizes.mesh_columns // plan.groups, output_columns), dtype=np.bool_)
    present = np.zeros(output_columns, dtype=np.int64)
    for column_round in range(plan.orders.shape[0]):
        for batch in range(plan.batches):
            round_number = column_round * plan.batches + batch
            for order in range(steps):
                depth = plan.orders[column_round, order]
                place = (round_number * steps + order, round_number, depth, batch)
                here = present[: find_columns(operands, plan, column_round, depth, present)]
                if here.size == 0:
                    continue
                used[:] = False
                before = cursor[: sizes.mesh_rows].copy()
                send_rows(operands, sizes, plan, place, here, used, cursor, item_cursor, write, rows)
                sent = cursor[: sizes.mesh_rows]
                if (sent == before).all():
                    continue
                send_columns(operands, sizes, plan, place, here, used, cursor, write, columns)
                if write:
                    meet_columns(operands, sizes, plan, here, used, before, sent, rows)
