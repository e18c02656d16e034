"""From one matrix product to the packets of a fabric: pieces, then a mapping, then streams.

A piece without a non-zero is never sent, and a piece goes out once for all clusters of a line that need it.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from acf.lowering import Gemm
from acf.lowering.fabric_shape import FabricShape
from acf.lowering.mapping import ReductionMapping, TokenMapping, choose_mapping
from acf.lowering.packets import Operands, Packets, Sizes
from acf.lowering.program import Program, Stream
from acf.lowering.reduction_streams import ReductionPlan, reduction_packets
from acf.lowering.tiled_product import TiledProduct, tile_product
from acf.lowering.token_streams import TokenPlan, token_packets

VALUE_BYTES = 2  # bf16, as results are written
SUM_BYTES = 4  # fp32, as partial sums travel


def lower_gemm(gemm: Gemm, shape: FabricShape) -> Program:
    """The program of one product; the streamed operand is the one that takes fewer cycles."""
    return lower_product(tile_product(gemm, shape), shape)


def lower_product(
    product: TiledProduct, shape: FabricShape, mapping: TokenMapping | ReductionMapping | None = None
) -> Program:
    """The program of a tiled product, with the best mapping or with one that is given."""
    mapping = mapping or choose_mapping(product, shape)
    if isinstance(mapping, TokenMapping):
        return _token_program(product, mapping, shape)
    return _reduction_program(product, mapping, shape)


def _operands(product: TiledProduct, shape: FabricShape) -> Operands:
    """The operands as the packets need them: how long a non-zero takes at each place of every parallel piece.

    A row of a block comes by a port that several units share, so it takes at least as many cycles as there are of them.
    """
    present = product.present
    at_least = np.maximum(-(-product.parallel.widths // shape.lanes), shape.scus_per_port)
    widths = np.where(present, at_least[:, None], 0)
    if shape.skip != "both":
        nothing = np.zeros((0, 0, 0), dtype=np.uint8)
        return Operands(
            product.serial.patterns,
            product.parallel.tile_nonzeros,
            nothing,
            widths.astype(np.int8),
            shape.skip == "gate",
            shape.tile,
        )
    cycles = (product.parallel.depth_nonzeros + np.uint8(shape.lanes - 1)) // np.uint8(shape.lanes)
    cycles = np.maximum(cycles, np.uint8(shape.scus_per_port))
    same = np.where((cycles == cycles[:, :, :1]).all(axis=2), cycles[:, :, 0].astype(np.int8), np.int8(-1))
    return Operands(product.serial.patterns, product.parallel.tile_nonzeros, cycles, same, False, shape.tile)


def _sizes(shape: FabricShape) -> Sizes:
    by_columns = shape.tile_format == "csc"
    return Sizes(shape.mesh_rows, shape.mesh_columns, shape.scus_per_cluster, shape.tile, shape.link_bytes, by_columns)


def _fill(
    lines: tuple[int, ...],
    shape: FabricShape,
    write: Callable[[NDArray[np.int64], NDArray[np.int64], bool, list[Packets]], None],
) -> list[Stream]:
    """Streams of so many controllers each: ``write`` runs once to count packets and items, once to fill them in."""
    cursor, items = np.zeros(sum(lines), dtype=np.int64), np.zeros(lines[0], dtype=np.int64)
    write(cursor, items, False, [Packets.empty(0, 0, shape.mesh_columns, shape.scus_per_cluster) for _ in lines])
    item_total, item_starts = int(items.sum()), np.concatenate(([0], np.cumsum(items)[:-1]))
    firsts, packets, starts = [], [], []
    begin = 0
    for index, count in enumerate(lines):
        first = np.concatenate(([0], np.cumsum(cursor[begin : begin + count])))
        begin += count
        total = item_total if index == 0 else 0
        packets.append(Packets.empty(int(first[-1]), total, shape.mesh_columns, shape.scus_per_cluster))
        packets[-1].item_first[:] = total
        firsts.append(first)
        starts.append(first[:-1])
    write(np.concatenate(starts), item_starts, True, packets)
    return [Stream(first, *filled) for first, filled in zip(firsts, packets, strict=True)]


def _token_program(product: TiledProduct, mapping: TokenMapping, shape: FabricShape) -> Program:
    parts = shape.mesh_rows * (shape.mesh_columns // mapping.groups)
    tile_first_row, tile_rows, part_first = _cut_rows(product, parts, shape)
    batches = max(1, -(-int(np.diff(part_first).max()) // mapping.batch))
    column_rounds = int(mapping.round_of.max(initial=0)) + 1
    needed = np.zeros((0, product.parallel.tiles), dtype=bool) if product.needed is None else product.needed
    operands, sizes, orders = _operands(product, shape), _sizes(shape), mapping.depth_order(product.present)
    pieces, columns_of = (tile_first_row, tile_rows, part_first), (mapping.group_of, mapping.round_of)
    plan = TokenPlan(*pieces, needed, *columns_of, orders, mapping.groups, mapping.batch, batches)

    def write(cursor: NDArray[np.int64], items: NDArray[np.int64], writes: bool, packets: list[Packets]) -> None:
        token_packets(operands, sizes, plan, cursor, items, writes, packets[0], packets[1])

    rows, columns = _fill((shape.mesh_rows, shape.mesh_columns), shape, write)
    rounds = column_rounds * batches
    return Program(
        rows=rows,
        columns=columns,
        round_of_k_step=np.repeat(np.arange(rounds, dtype=np.int32), product.k_tiles),
        round_flits=_token_result_flits(product, mapping, part_first, batches, shape),
        reduces=False,
        tile_first_row=tile_first_row,
        tile_rows=tile_rows,
        swapped=product.swapped,
    )


def _cut_rows(
    product: TiledProduct, parts: int, shape: FabricShape
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """First row and length of every piece, part by part, and the first piece of every part of the rows.

    Whole tiles are dealt out in turn, so that denser and emptier stretches reach every part; rows that do not fill one
    more tile for everybody are shared out evenly. Where only some output pieces are needed, pieces keep to their tiles.
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
    return np.concatenate(firsts), np.concatenate(lengths).astype(np.int32), np.array(part_first, dtype=np.int64)


def _token_result_flits(
    product: TiledProduct, mapping: TokenMapping, part_first: NDArray[np.int64], batches: int, shape: FabricShape
) -> NDArray[np.int32]:
    """Flits of results of every round, int32 ``[rounds, mesh_rows, mesh_columns]``; absent output columns send none."""
    column_rounds = int(mapping.round_of.max(initial=0)) + 1
    owned = np.zeros((column_rounds, mapping.groups), dtype=np.int64)
    filled = np.flatnonzero(mapping.round_of >= 0)
    np.add.at(owned, (mapping.round_of[filled], mapping.group_of[filled]), 1)
    left = np.diff(part_first)[None, :] - np.arange(batches)[:, None] * mapping.batch
    pieces = np.clip(left, 0, mapping.batch).reshape(batches, shape.mesh_rows, -1)
    tiles = pieces[None, :, :, :, None] * owned[:, None, None, None, :]
    flits = -(-tiles * shape.tile**2 * VALUE_BYTES // shape.link_bytes)
    return flits.reshape(column_rounds * batches, shape.mesh_rows, shape.mesh_columns).astype(np.int32)


def _reduction_program(product: TiledProduct, mapping: ReductionMapping, shape: FabricShape) -> Program:
    order = np.lexsort((np.arange(mapping.round_of.size), mapping.round_of))
    rounds = int(mapping.round_of.max()) + 1
    round_first = np.searchsorted(mapping.round_of[order], np.arange(rounds + 1)).astype(np.int64)
    operands, sizes = _operands(product, shape), _sizes(shape)
    places = (mapping.output_rows[order], mapping.output_columns[order], mapping.column_of[order])
    plan = ReductionPlan(*places, round_first, mapping.split)

    def write(cursor: NDArray[np.int64], items: NDArray[np.int64], writes: bool, packets: list[Packets]) -> None:
        reduction_packets(operands, sizes, plan, cursor, items, writes, packets[0])

    (rows,) = _fill((shape.mesh_rows,), shape, write)
    groups = shape.mesh_columns // mapping.split
    pieces = np.zeros((rounds, groups), dtype=np.int64)
    np.add.at(pieces, (mapping.round_of, mapping.column_of), 1)
    flits = np.tile(-(-pieces * shape.tile**2 * SUM_BYTES // shape.link_bytes), (1, mapping.split)) * mapping.split
    local_steps = -(-product.k_tiles // (shape.mesh_rows * mapping.split))
    no_packets = Packets.empty(0, 0, shape.mesh_columns, shape.scus_per_cluster)
    return Program(
        rows=rows,
        columns=Stream(np.zeros(shape.mesh_columns + 1, dtype=np.int64), *no_packets),
        round_of_k_step=np.repeat(np.arange(rounds, dtype=np.int32), local_steps),
        round_flits=np.repeat(flits[:, None, :], shape.mesh_rows, axis=1).astype(np.int32),
        reduces=True,
        tile_first_row=np.arange(0, product.serial.rows, shape.tile, dtype=np.int64),
        tile_rows=product.serial.widths.astype(np.int32),
        swapped=product.swapped,
        split=mapping.split,
    )
