"""Packets of an output-stationary program: output rows spread over the mesh, the whole reduction in each cluster."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled, inlined
from acf.lowering.fabric_shape import VALUE_BYTES, FabricShape
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.packets import (
    Lines,
    Operands,
    PacketWriter,
    Place,
    Sizes,
    add_cycles,
    destination_bit,
    emit,
    meet,
    nonzeros_of,
)
from acf.lowering.program import PARALLEL, SERIAL, Program
from acf.lowering.streams import write_streams
from acf.lowering.tiled_product import TiledProduct

Columns = NDArray[np.int64]
"""Numbers of output column tiles."""


class RowParts(NamedTuple):
    """The output rows cut into serial tiles and dealt out to parts, one part per mesh row and column group.

    ``first_row`` and ``rows [tiles]``: the first row of every tile and how many it has, part by part; part ``p`` has
    tiles ``part_first[p]`` up to ``part_first[p + 1]``.
    """

    first_row: NDArray[np.int64]
    rows: NDArray[np.int32]
    part_first: NDArray[np.int64]


class Plan(NamedTuple):
    """Which line of clusters gets which tiles, and when.

    ``column_of`` and ``round_of [output columns]``, ``k_orders [column rounds, k_tiles]``, ``group_columns`` and
    ``row_tiles_per_round`` are the mapping's. A column round repeats for ``row_rounds`` batches of serial tiles.
    ``needed [row tiles, output columns]`` has no rows where all outputs are needed.
    """

    operands: Operands
    sizes: Sizes
    tiles: RowParts
    needed: NDArray[np.bool_]
    column_of: NDArray[np.int64]
    round_of: NDArray[np.int64]
    k_orders: NDArray[np.int64]
    group_columns: int
    row_tiles_per_round: int
    row_rounds: int


class KStep(NamedTuple):
    """One k_step of a round: its number, the accumulator round, the tile along k, and the batch of serial tiles."""

    k_step: int
    round: int
    k_tile: int
    row_round: int


@inlined
def is_needed(needed: NDArray[np.bool_], row_tile: int, column: int) -> bool:
    """Whether an output tile is needed; a mask without rows stands for all."""
    return needed.shape[0] == 0 or bool(needed[row_tile, column])


@compiled
def present_columns(plan: Plan, column_round: int, k_tile: int, buffer: Columns) -> Columns:
    """The output columns of a round that have a parallel tile at ``k_tile``, written to the front of ``buffer``."""
    found = 0
    for column in range(buffer.size):
        if plan.round_of[column] == column_round and plan.operands.tile_nonzeros[column, k_tile] > 0:
            buffer[found] = column
            found += 1
    return buffer[:found]


@compiled
def find_destinations(
    plan: Plan, first_row: int, mesh_row: int, part: int, columns: Columns, used: NDArray[np.bool_]
) -> np.uint64:
    """The clusters of a mesh row that need a serial tile for one of ``columns``, which become ``used``."""
    needed, column_of, row_tile = plan.needed, plan.column_of, first_row // plan.sizes.tile
    destinations = np.uint64(0)
    for column in columns:
        if is_needed(needed, row_tile, column):
            destinations |= destination_bit(part * plan.group_columns + column_of[column])
            used[mesh_row, part, column] = True
    return destinations


@compiled
def send_serial(plan: Plan, step: KStep, columns: Columns, used: NDArray[np.bool_], rows: PacketWriter) -> None:
    """The serial packets of one k_step, multicast along mesh rows; tiles without a non-zero are not sent."""
    operands, sizes, tiles = plan.operands, plan.sizes, plan.tiles
    groups = sizes.mesh_columns // plan.group_columns
    for mesh_row in range(sizes.mesh_rows):
        for part in range(groups):
            begin = tiles.part_first[mesh_row * groups + part] + step.row_round * plan.row_tiles_per_round
            end = min(tiles.part_first[mesh_row * groups + part + 1], begin + plan.row_tiles_per_round)
            for tile in range(begin, end):
                first = tiles.first_row[tile]
                nonzeros = nonzeros_of(operands, first, tiles.rows[tile], step.k_tile)
                if nonzeros == 0:
                    continue
                destinations = find_destinations(plan, first, mesh_row, part, columns, used)
                if destinations:
                    place = Place(step.k_step, step.round, tile, step.k_tile)
                    emit(rows, mesh_row, SERIAL, place, nonzeros, destinations, sizes)


@compiled
def send_parallel(plan: Plan, step: KStep, columns: Columns, used: NDArray[np.bool_], writer: PacketWriter) -> None:
    """The parallel packets of one k_step, multicast along mesh columns to the mesh rows that use them."""
    tile_nonzeros, sizes = plan.operands.tile_nonzeros, plan.sizes
    for column in columns:
        for part in range(sizes.mesh_columns // plan.group_columns):
            destinations = np.uint64(0)
            for mesh_row in range(sizes.mesh_rows):
                if used[mesh_row, part, column]:
                    destinations |= destination_bit(mesh_row)
            if destinations:
                line = part * plan.group_columns + plan.column_of[column]
                place = Place(step.k_step, step.round, column, step.k_tile)
                emit(writer, line, PARALLEL, place, tile_nonzeros[column, step.k_tile], destinations, sizes)


@compiled
def record_meetings(plan: Plan, columns: Columns, used: NDArray[np.bool_], begin: Lines, rows: PacketWriter) -> None:
    """What the serial packets of one k_step, from ``begin`` on in each mesh row, meet in their clusters."""
    operands, sizes, tiles, packets = plan.operands, plan.sizes, plan.tiles, rows.packets
    needed, column_of = plan.needed, plan.column_of
    groups = sizes.mesh_columns // plan.group_columns
    arrived = np.zeros(plan.group_columns, dtype=np.int64)
    for mesh_row in range(sizes.mesh_rows):
        for packet in range(begin[mesh_row], rows.next_packet[mesh_row]):
            tile = packets.row_tile[packet]
            first, count = tiles.first_row[tile], tiles.rows[tile]
            part = 0
            while tile >= tiles.part_first[mesh_row * groups + part + 1]:
                part += 1
            arrived[:] = 0
            for column in columns:
                if not used[mesh_row, part, column]:
                    continue
                mesh_column = column_of[column]
                rank = arrived[mesh_column]
                arrived[mesh_column] += 1
                if is_needed(needed, first // sizes.tile, column):
                    cycles = meet(packets, packet, part * plan.group_columns + mesh_column, rank)
                    add_cycles(operands, (first, count), packets.k_tile[packet], column, sizes, cycles)


@compiled
def write_packets(plan: Plan, rows: PacketWriter, columns: PacketWriter) -> None:
    """All packets in the order of sending: by round, then by k_step."""
    k_tiles, output_columns = plan.operands.patterns.shape[1], plan.operands.tile_nonzeros.shape[0]
    groups = plan.sizes.mesh_columns // plan.group_columns
    used = np.zeros((plan.sizes.mesh_rows, groups, output_columns), dtype=np.bool_)
    buffer = np.zeros(output_columns, dtype=np.int64)
    for column_round in range(plan.k_orders.shape[0]):
        for row_round in range(plan.row_rounds):
            round_number = column_round * plan.row_rounds + row_round
            for order in range(k_tiles):
                k_tile = plan.k_orders[column_round, order]
                step = KStep(round_number * k_tiles + order, round_number, k_tile, row_round)
                present = present_columns(plan, column_round, k_tile, buffer)
                if present.size == 0:
                    continue
                used[:] = False
                begin = rows.next_packet.copy()
                send_serial(plan, step, present, used, rows)
                if (rows.next_packet == begin).all():
                    continue
                send_parallel(plan, step, present, used, columns)
                if rows.writes:
                    record_meetings(plan, present, used, begin, rows)


def output_stationary_program(product: TiledProduct, mapping: OutputStationaryMapping, shape: FabricShape) -> Program:
    """The program of ``product`` under an output-stationary mapping."""
    tiles = deal_rows(product, mapping.row_parts(shape), shape)
    row_rounds = max(1, -(-int(np.diff(tiles.part_first).max()) // mapping.row_tiles_per_round))
    plan = Plan(
        operands=Operands.of(product, shape),
        sizes=Sizes.of(shape),
        tiles=tiles,
        needed=np.zeros((0, product.parallel.tiles), dtype=bool) if product.needed is None else product.needed,
        column_of=mapping.column_of,
        round_of=mapping.round_of,
        k_orders=mapping.k_orders(product.present),
        group_columns=mapping.group_columns,
        row_tiles_per_round=mapping.row_tiles_per_round,
        row_rounds=row_rounds,
    )
    rows, columns = write_streams(
        (shape.mesh_rows, shape.mesh_columns), shape, lambda writers: write_packets(plan, writers[0], writers[1])
    )
    rounds = mapping.column_rounds * row_rounds
    return Program(
        rows=rows,
        columns=columns,
        round_of_k_step=np.repeat(np.arange(rounds, dtype=np.int32), product.k_tiles),
        round_flits=_result_flits(mapping, tiles, row_rounds, shape),
        reduces=False,
        tile_first_row=tiles.first_row,
        tile_rows=tiles.rows,
        swapped=product.swapped,
    )


def deal_rows(product: TiledProduct, parts: int, shape: FabricShape) -> RowParts:
    """Deal whole tiles out round-robin, so that dense and sparse stretches of rows reach every part.

    The rows that do not fill one more tile for every part are divided evenly. Where only some output tiles are needed,
    all tiles keep to the grid of the mask.
    """
    rows, tile = product.serial.rows, shape.tile
    whole = product.serial.tiles if product.needed is not None else rows // (tile * parts) * parts
    bounds = whole * tile + np.arange(parts + 1, dtype=np.int64) * max(0, rows - whole * tile) // parts
    firsts, lengths, part_first = [], [], [0]
    for part in range(parts):
        tiles = np.arange(part, whole, parts, dtype=np.int64) * tile
        rest = np.arange(bounds[part], bounds[part + 1], tile, dtype=np.int64)
        firsts += [tiles, rest]
        lengths += [np.minimum(tiles + tile, rows) - tiles, np.minimum(rest + tile, bounds[part + 1]) - rest]
        part_first.append(part_first[-1] + tiles.size + rest.size)
    return RowParts(
        np.concatenate(firsts), np.concatenate(lengths).astype(np.int32), np.array(part_first, dtype=np.int64)
    )


def _result_flits(
    mapping: OutputStationaryMapping, tiles: RowParts, row_rounds: int, shape: FabricShape
) -> NDArray[np.int32]:
    """Flits of results of every round, int32 ``[rounds, mesh_rows, mesh_columns]``; absent output columns send none."""
    owned = np.zeros((mapping.column_rounds, mapping.group_columns), dtype=np.int64)
    filled = np.flatnonzero(mapping.round_of >= 0)
    np.add.at(owned, (mapping.round_of[filled], mapping.column_of[filled]), 1)
    left = np.diff(tiles.part_first)[None, :] - np.arange(row_rounds)[:, None] * mapping.row_tiles_per_round
    row_tiles = np.clip(left, 0, mapping.row_tiles_per_round).reshape(row_rounds, shape.mesh_rows, -1)
    output_tiles = row_tiles[None, :, :, :, None] * owned[:, None, None, None, :]
    flits = -(-output_tiles * shape.tile**2 * VALUE_BYTES // shape.link_bytes)
    rounds = mapping.column_rounds * row_rounds
    return flits.reshape(rounds, shape.mesh_rows, shape.mesh_columns).astype(np.int32)
