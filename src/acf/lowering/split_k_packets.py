"""Packets of a split-K program: the reduction spread over the mesh, partial sums added down the mesh columns."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
from acf.lowering.fabric_shape import SUM_BYTES, FabricShape
from acf.lowering.packets import (
    Operands,
    Packets,
    PacketWriter,
    Place,
    Sizes,
    add_cycles,
    destination_bit,
    emit,
    is_destination,
    meet,
    nonzeros_of,
)
from acf.lowering.program import PARALLEL, SERIAL, Program, Stream
from acf.lowering.split_k import SplitKMapping
from acf.lowering.streams import write_streams
from acf.lowering.tiled_product import TiledProduct


class Plan(NamedTuple):
    """Which clusters accumulate which output tiles, and when.

    ``output_rows``, ``output_columns`` and ``column_of [output tiles]``, sorted by accumulator round: round ``n`` has
    those from ``round_first[n]`` up to ``round_first[n + 1]``. ``round_columns``: its output columns, each once and in
    order, from ``columns_first[n]`` up to ``columns_first[n + 1]``. ``split`` groups of mesh columns share a reduction.
    """

    operands: Operands
    sizes: Sizes
    output_rows: NDArray[np.int64]
    output_columns: NDArray[np.int64]
    column_of: NDArray[np.int64]
    round_first: NDArray[np.int64]
    round_columns: NDArray[np.int64]
    columns_first: NDArray[np.int64]
    split: int


class KTile(NamedTuple):
    """One tile along the reduction in one round, and the mesh row and group of mesh columns that handle it.

    ``visit`` numbers all of these in order.
    """

    k_step: int
    round: int
    k_tile: int
    mesh_row: int
    group: int
    visit: int


class Multicast(NamedTuple):
    """Who needs the tiles of the current `KTile`: of the serial operand by row tile, of the parallel one by column.

    ``row_visit`` is the last visit to a row tile; where that is not the current one, the row's other entries are stale.
    ``column_rank [output columns, mesh columns of a group]``: the order of arrival at each cluster.
    """

    row_visit: NDArray[np.int64]
    row_nonzeros: NDArray[np.int64]
    row_packet: NDArray[np.int64]
    row_destinations: NDArray[np.uint64]
    column_destinations: NDArray[np.uint64]
    column_rank: NDArray[np.int64]


@compiled
def new_multicast(plan: Plan) -> Multicast:
    """The state before the first visit."""
    columns = plan.operands.tile_nonzeros.shape[0]
    row_tiles = -(-plan.operands.patterns.shape[0] // plan.sizes.tile)
    return Multicast(
        np.full(row_tiles, -1, dtype=np.int64),
        np.zeros(row_tiles, dtype=np.int64),
        np.full(row_tiles, -1, dtype=np.int64),
        np.zeros(row_tiles, dtype=np.uint64),
        np.zeros(columns, dtype=np.uint64),
        np.zeros((columns, plan.sizes.mesh_columns // plan.split), dtype=np.int64),
    )


@compiled
def rows_of(plan: Plan, row_tile: int) -> tuple[int, int]:
    """First row of a serial tile, and how many it has."""
    first = row_tile * plan.sizes.tile
    return first, min(plan.sizes.tile, plan.operands.patterns.shape[0] - first)


@compiled
def find_destinations(plan: Plan, here: KTile, multicast: Multicast) -> None:
    """Mark the clusters that need each row tile and each column tile: those with a non-zero on both sides."""
    for output in range(plan.round_first[here.round], plan.round_first[here.round + 1]):
        row, column = plan.output_rows[output], plan.output_columns[output]
        if multicast.row_visit[row] != here.visit:
            multicast.row_visit[row] = here.visit
            first, count = rows_of(plan, row)
            multicast.row_nonzeros[row] = nonzeros_of(plan.operands, first, count, here.k_tile)
            multicast.row_destinations[row] = np.uint64(0)
            multicast.row_packet[row] = -1
        if multicast.row_nonzeros[row] and plan.operands.tile_nonzeros[column, here.k_tile] > 0:
            bit = destination_bit(here.group * (plan.sizes.mesh_columns // plan.split) + plan.column_of[output])
            multicast.row_destinations[row] |= bit
            multicast.column_destinations[column] |= bit


@compiled
def send_parallel(plan: Plan, here: KTile, multicast: Multicast, writer: PacketWriter) -> None:
    """The parallel packets of one k_tile by output column; their rank in a cluster is the order of arrival."""
    group_columns = plan.sizes.mesh_columns // plan.split
    arrived = np.zeros(group_columns, dtype=np.int64)
    for place in range(plan.columns_first[here.round], plan.columns_first[here.round + 1]):
        column = plan.round_columns[place]
        destinations = multicast.column_destinations[column]
        if not destinations:
            continue
        packet = Place(here.k_step, here.round, column, here.k_tile)
        nonzeros = plan.operands.tile_nonzeros[column, here.k_tile]
        emit(writer, here.mesh_row, PARALLEL, packet, nonzeros, destinations, plan.sizes)
        for mesh_column in range(group_columns):
            if is_destination(destinations, here.group * group_columns + mesh_column):
                multicast.column_rank[column, mesh_column] = arrived[mesh_column]
                arrived[mesh_column] += 1
        multicast.column_destinations[column] = np.uint64(0)


@compiled
def send_serial(plan: Plan, here: KTile, multicast: Multicast, writer: PacketWriter) -> None:
    """The serial packets of one k_tile, each once, and what they meet."""
    group_columns = plan.sizes.mesh_columns // plan.split
    for output in range(plan.round_first[here.round], plan.round_first[here.round + 1]):
        row, column, mesh_column = plan.output_rows[output], plan.output_columns[output], plan.column_of[output]
        destinations = multicast.row_destinations[row]
        if not destinations:
            continue
        if multicast.row_packet[row] < 0:
            place = Place(here.k_step, here.round, row, here.k_tile)
            nonzeros = multicast.row_nonzeros[row]
            multicast.row_packet[row] = emit(writer, here.mesh_row, SERIAL, place, nonzeros, destinations, plan.sizes)
        if writer.writes and plan.operands.tile_nonzeros[column, here.k_tile] > 0:
            cluster, rank = here.group * group_columns + mesh_column, multicast.column_rank[column, mesh_column]
            cycles = meet(writer.packets, multicast.row_packet[row], cluster, rank)
            add_cycles(plan.operands, rows_of(plan, row), here.k_tile, column, plan.sizes, cycles)


@compiled
def write_packets(plan: Plan, k_steps_per_round: int, writer: PacketWriter) -> None:
    """All packets in the order of sending; the parallel tiles of a k_tile come before the serial ones.

    The k_tiles of a round are dealt out round-robin to mesh rows, then to groups of mesh columns.
    """
    k_tiles, mesh_rows = plan.operands.patterns.shape[1], plan.sizes.mesh_rows
    multicast = new_multicast(plan)
    visit = 0
    for round_number in range(plan.round_first.size - 1):
        for local_step in range(k_steps_per_round):
            k_step = round_number * k_steps_per_round + local_step
            for mesh_row in range(mesh_rows):
                for group in range(plan.split):
                    k_tile = (local_step * plan.split + group) * mesh_rows + mesh_row
                    if k_tile >= k_tiles:
                        continue
                    visit += 1
                    here = KTile(k_step, round_number, k_tile, mesh_row, group, visit)
                    find_destinations(plan, here, multicast)
                    send_parallel(plan, here, multicast, writer)
                    send_serial(plan, here, multicast, writer)


def split_k_program(product: TiledProduct, mapping: SplitKMapping, shape: FabricShape) -> Program:
    """The program of ``product`` under a split-K mapping."""
    by_round = np.lexsort((np.arange(mapping.round_of.size), mapping.round_of))
    columns = [np.unique(mapping.output_columns[mapping.round_of == number]) for number in range(mapping.rounds)]
    plan = Plan(
        operands=Operands.of(product, shape),
        sizes=Sizes.of(shape),
        output_rows=mapping.output_rows[by_round],
        output_columns=mapping.output_columns[by_round],
        column_of=mapping.column_of[by_round],
        round_first=np.searchsorted(mapping.round_of[by_round], np.arange(mapping.rounds + 1)).astype(np.int64),
        round_columns=np.concatenate(columns),
        columns_first=np.concatenate(([0], np.cumsum([each.size for each in columns]))).astype(np.int64),
        split=mapping.split,
    )
    k_steps_per_round = -(-product.k_tiles // (shape.mesh_rows * mapping.split))
    (rows,) = write_streams(
        (shape.mesh_rows,), shape, lambda writers: write_packets(plan, k_steps_per_round, writers[0])
    )
    return Program(
        rows=rows,
        columns=Stream(np.zeros(shape.mesh_columns + 1, dtype=np.int64), *Packets.empty(0, 0, shape)),
        round_of_k_step=np.repeat(np.arange(mapping.rounds, dtype=np.int32), k_steps_per_round),
        round_flits=_partial_sum_flits(mapping, shape),
        reduces=True,
        tile_first_row=np.arange(0, product.serial.rows, shape.tile, dtype=np.int64),
        tile_rows=product.serial.widths.astype(np.int32),
        swapped=product.swapped,
        split=mapping.split,
    )


def _partial_sum_flits(mapping: SplitKMapping, shape: FabricShape) -> NDArray[np.int32]:
    """Flits of partial sums of every round, int32 ``[rounds, mesh_rows, mesh_columns]``."""
    output_tiles = np.zeros((mapping.rounds, shape.mesh_columns // mapping.split), dtype=np.int64)
    np.add.at(output_tiles, (mapping.round_of, mapping.column_of), 1)
    flits = -(-output_tiles * shape.tile**2 * SUM_BYTES // shape.link_bytes)
    by_column = np.tile(flits, (1, mapping.split)) * mapping.split
    return np.repeat(by_column[:, None, :], shape.mesh_rows, axis=1).astype(np.int32)
