"""From one matrix product to the packets of a fabric: pieces, then a mapping, then streams.

A piece without a non-zero is never sent, and a piece goes out once for all clusters of a line that need it.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from acf.program.mapping import ReductionMapping, TokenMapping, Work, choose_mapping
from acf.program.program import Program, Stream
from acf.program.shape import FabricShape
from acf.program.streams import empty_arrays, reduction_packets, token_packets
from acf.program.tiles import TiledRows, tiles_any
from acf.trace import Gemm

VALUE_BYTES = 2  # bf16, as results are written
SUM_BYTES = 4  # fp32, as partial sums travel


def lower_gemm(gemm: Gemm, shape: FabricShape) -> Program:
    """The program of one product; the operand walked value by value is the one that takes fewer cycles."""
    return lower_work(*choose_work(gemm, shape), shape)


def lower_work(work: Work, swapped: bool, shape: FabricShape) -> Program:
    """The program of a product in pieces."""
    mapping = choose_mapping(work, shape)
    if isinstance(mapping, TokenMapping):
        return _token_program(work, mapping, shape, swapped)
    return _reduction_program(work, mapping, shape, swapped)


def choose_work(gemm: Gemm, shape: FabricShape) -> tuple[Work, bool]:
    """The product in pieces, and whether the right operand is the serial one."""
    left, right = TiledRows.of(gemm.left, shape.tile), TiledRows.of(gemm.right, shape.tile)
    needed = None if gemm.needed is None else tiles_any(gemm.needed, shape.tile)
    if _slots(right, left, shape) < _slots(left, right, shape):
        return Work(right, left, None if needed is None else np.ascontiguousarray(needed.T)), True
    return Work(left, right, needed), False


def _slots(serial: TiledRows, parallel: TiledRows, shape: FabricShape) -> float:
    """MAC slots if ``serial`` is walked: its non-zeros, or all its values where zeros are only gated."""
    present = ((parallel.tile_nonzeros > 0) * parallel.widths[:, None]).sum(axis=0)
    if shape.skip == "gate":
        return float(present.sum()) * serial.rows * shape.tile
    return float((serial.tile_nonzeros.sum(axis=0) * present).sum())


def _token_program(work: Work, mapping: TokenMapping, shape: FabricShape, swapped: bool) -> Program:
    parts = shape.mesh_rows * (shape.mesh_columns // mapping.groups)
    piece_first, piece_rows, part_first = _cut_rows(work, parts, shape)
    batches = max(1, -(-int(np.diff(part_first).max()) // mapping.batch))
    column_rounds = int(mapping.round_of.max(initial=0)) + 1
    no_needed = np.zeros((0, work.parallel.tiles), dtype=bool)
    cursor = np.zeros(shape.mesh_rows + shape.mesh_columns, dtype=np.int64)
    rows, columns = (empty_arrays(0, shape.tile, shape.mesh_columns) for _ in range(2))
    row_first, column_first = (np.zeros(lines + 1, dtype=np.int64) for lines in (shape.mesh_rows, shape.mesh_columns))
    for write in (False, True):
        token_packets(
            work.serial.row_nonzeros,
            piece_first,
            piece_rows,
            part_first,
            work.parallel.tile_nonzeros,
            -(-work.parallel.widths // shape.lanes),
            no_needed if work.needed is None else work.needed,
            mapping.group_of,
            mapping.round_of,
            mapping.groups,
            mapping.batch,
            batches,
            column_rounds,
            shape.mesh_rows,
            shape.mesh_columns,
            shape.tile,
            shape.link_bytes,
            cursor,
            write,
            rows,
            columns,
        )
        if not write:
            row_first[1:] = np.cumsum(cursor[: shape.mesh_rows])
            column_first[1:] = np.cumsum(cursor[shape.mesh_rows :])
            rows = empty_arrays(int(row_first[-1]), shape.tile, shape.mesh_columns)
            columns = empty_arrays(int(column_first[-1]), shape.tile, shape.mesh_columns)
            cursor = np.concatenate((row_first[:-1], column_first[:-1]))
    rounds = column_rounds * batches
    return Program(
        rows=Stream(row_first, *rows),
        columns=Stream(column_first, *columns),
        round_of_step=np.repeat(np.arange(rounds, dtype=np.int32), work.serial.steps),
        round_flits=_token_result_flits(work, mapping, part_first, batches, shape),
        reduces=False,
        piece_first=piece_first,
        piece_rows=piece_rows,
        swapped=swapped,
    )


def _cut_rows(
    work: Work, parts: int, shape: FabricShape
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """First row and length of every piece, and the first piece of every part of the rows.

    Parts are as equal as rows allow; where only some output pieces are needed, pieces keep to the tiles of the mask.
    """
    rows, tile = work.serial.rows, shape.tile
    if work.needed is None:
        bounds = np.arange(parts + 1, dtype=np.int64) * rows // parts
    else:
        bounds = np.minimum(np.arange(parts + 1, dtype=np.int64) * work.serial.tiles // parts * tile, rows)
    starts = [np.arange(begin, end, tile) for begin, end in pairwise(bounds)]
    lengths = [np.minimum(begins + tile, end) - begins for begins, end in zip(starts, bounds[1:], strict=True)]
    part_first = np.concatenate(([0], np.cumsum([begins.size for begins in starts])))
    return np.concatenate(starts), np.concatenate(lengths).astype(np.int32), part_first.astype(np.int64)


def _token_result_flits(
    work: Work, mapping: TokenMapping, part_first: NDArray[np.int64], batches: int, shape: FabricShape
) -> NDArray[np.int32]:
    """Flits of results of every round, int32 ``[rounds, mesh_rows, mesh_columns]``; absent output columns send none."""
    column_rounds = int(mapping.round_of.max(initial=0)) + 1
    owned = np.zeros((column_rounds, mapping.groups), dtype=np.int64)
    np.add.at(owned, (mapping.round_of, mapping.group_of), work.present.any(axis=1))
    left = np.diff(part_first)[None, :] - np.arange(batches)[:, None] * mapping.batch
    pieces = np.clip(left, 0, mapping.batch).reshape(batches, shape.mesh_rows, -1)
    tiles = pieces[None, :, :, :, None] * owned[:, None, None, None, :]
    flits = -(-tiles * shape.tile**2 * VALUE_BYTES // shape.link_bytes)
    return flits.reshape(column_rounds * batches, shape.mesh_rows, shape.mesh_columns).astype(np.int32)


def _reduction_program(work: Work, mapping: ReductionMapping, shape: FabricShape, swapped: bool) -> Program:
    order = np.lexsort((np.arange(mapping.round_of.size), mapping.round_of))
    rounds = int(mapping.round_of.max()) + 1
    round_first = np.searchsorted(mapping.round_of[order], np.arange(rounds + 1)).astype(np.int64)
    cursor = np.zeros(shape.mesh_rows, dtype=np.int64)
    first = np.zeros(shape.mesh_rows + 1, dtype=np.int64)
    rows = empty_arrays(0, shape.tile, shape.mesh_columns)
    for write in (False, True):
        reduction_packets(
            work.serial.tile_nonzeros,
            work.serial.row_nonzeros,
            work.parallel.tile_nonzeros,
            -(-work.parallel.widths // shape.lanes),
            mapping.output_rows[order],
            mapping.output_columns[order],
            mapping.column_of[order],
            round_first,
            mapping.split,
            shape.mesh_rows,
            shape.mesh_columns,
            shape.tile,
            shape.link_bytes,
            cursor,
            write,
            rows,
        )
        if not write:
            first[1:] = np.cumsum(cursor)
            rows = empty_arrays(int(first[-1]), shape.tile, shape.mesh_columns)
            cursor = first[:-1].copy()
    groups = shape.mesh_columns // mapping.split
    pieces = np.zeros((rounds, groups), dtype=np.int64)
    np.add.at(pieces, (mapping.round_of, mapping.column_of), 1)
    flits = np.tile(-(-pieces * shape.tile**2 * SUM_BYTES // shape.link_bytes), (1, mapping.split)) * mapping.split
    local_steps = -(-work.serial.steps // (shape.mesh_rows * mapping.split))
    serial_first = np.arange(0, work.serial.rows, shape.tile, dtype=np.int64)
    return Program(
        rows=Stream(first, *rows),
        columns=Stream(
            np.zeros(shape.mesh_columns + 1, dtype=np.int64), *empty_arrays(0, shape.tile, shape.mesh_columns)
        ),
        round_of_step=np.repeat(np.arange(rounds, dtype=np.int32), local_steps),
        round_flits=np.repeat(flits[:, None, :], shape.mesh_rows, axis=1).astype(np.int32),
        reduces=True,
        piece_first=serial_first,
        piece_rows=work.serial.widths.astype(np.int32),
        swapped=swapped,
    )
