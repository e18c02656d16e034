"""Inner loops of `acf.runtime.arithmetic`.

Matrices are float32, row-major, and cut into tiles of ``tile`` x ``tile``. Tiles without a non-zero and output tiles
that nobody needs are skipped; within the others every sum takes its products in the same order.
"""

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled, inlined

Values = NDArray[np.float32]
Tiles = NDArray[np.bool_]
Order = NDArray[np.int64]


@compiled
def flush(values: Values) -> None:
    """Subnormal numbers of a vector become zero of the same sign, in place."""
    bits = values.view(np.uint32)
    for place in range(bits.size):
        word = bits[place]
        bits[place] = word if word & np.uint32(0x7F800000) else word & np.uint32(0x80000000)


@compiled
def copy_by_blocks(source: Values, target: Values) -> None:
    """``target[...] = source`` of matrices in different memory orders, block by block, which caches hold."""
    side = 64
    for first_row in range(0, source.shape[0], side):
        for first_column in range(0, source.shape[1], side):
            for row in range(first_row, min(first_row + side, source.shape[0])):
                for column in range(first_column, min(first_column + side, source.shape[1])):
                    target[row, column] = source[row, column]


@compiled
def gather(memory: Values, row_at: Order, column_at: Order, target: Values) -> None:
    """``target[r, c] = memory[row_at[r] + column_at[c]]``, block by block, which caches hold."""
    side = 64
    for first_row in range(0, row_at.size, side):
        for first_column in range(0, column_at.size, side):
            for row in range(first_row, min(first_row + side, row_at.size)):
                for column in range(first_column, min(first_column + side, column_at.size)):
                    target[row, column] = memory[row_at[row] + column_at[column]]


@compiled
def magnitude_range(values: Values) -> tuple[int, int]:
    """Bits of the least non-zero and of the greatest magnitude of a vector; the former 2**32 where all are zero."""
    bits = values.view(np.uint32)
    least, greatest = np.uint32(0xFFFFFFFF), np.uint32(0)
    for place in range(bits.size):
        magnitude = bits[place] & np.uint32(0x7FFFFFFF)
        below = np.uint32(magnitude - np.uint32(1))  # zero wraps to the greatest number
        least = below if below < least else least
        greatest = magnitude if magnitude > greatest else greatest
    return int(least) + 1, int(greatest)


@compiled
def mark_tiles(values: Values, tile: int, present: Tiles) -> None:
    """Mark the tiles of a matrix that have a non-zero."""
    for row in range(values.shape[0]):
        for column_tile in range(present.shape[1]):
            if present[row // tile, column_tile]:
                continue
            for column in range(column_tile * tile, min((column_tile + 1) * tile, values.shape[1])):
                if values[row, column] != np.float32(0):
                    present[row // tile, column_tile] = True
                    break


COLUMN_BLOCK = 512
"""Columns at a time: their part of a row of tiles, 16 rows of 2 KiB, stays in the first-level cache."""


@inlined
def _find_runs(right_tiles, kept_tiles, tile, columns, first, runs):  # type: ignore[no-untyped-def]
    """Fill ``runs [tiles, 2]`` with spans of columns whose tiles are present and kept; how many there are.

    Of the block of columns whose first tile is ``first``.
    """
    count = 0
    for column_tile in range(first, min(first + max(1, COLUMN_BLOCK // tile), right_tiles.size)):
        if not (right_tiles[column_tile] and kept_tiles[column_tile]):
            continue
        start, stop = column_tile * tile, min((column_tile + 1) * tile, columns)
        if count and runs[count - 1, 1] == start:
            runs[count - 1, 1] = stop
        else:
            runs[count, 0], runs[count, 1] = start, stop
            count += 1
    return count


@compiled
def add_tiles(
    left: Values,
    row_at: Order,
    k_at: Order,
    right: Values,
    tile: int,
    k_tiles: Order,
    left_present: Tiles,
    right_present: Tiles,
    kept: Tiles,
    output: Values,
) -> None:
    """``output += left @ right`` where nothing is flushed; products of bf16 are exact in float32.

    ``left`` is the memory of an `acf.runtime.implicit_matrix.ImplicitMatrix`: element ``(r, k)`` is
    ``left[row_at[r] + k_at[k]]``.
    ``left_present``, ``right_present`` and ``kept`` mark tiles of the operands and of the output; every sum takes the
    ``k_tiles`` in this order, and rising k in each.
    """
    runs = np.empty((right_present.shape[1], 2), dtype=np.uint64)  # unsigned: no check for negative indices
    for first in range(0, kept.shape[1], max(1, COLUMN_BLOCK // tile)):
        for row_tile in range(kept.shape[0]):
            for k_tile in k_tiles:
                if not left_present[row_tile, k_tile]:
                    continue
                count = _find_runs(right_present[k_tile], kept[row_tile], tile, output.shape[1], first, runs)
                if not count:
                    continue
                for k in range(k_tile * tile, min((k_tile + 1) * tile, right.shape[0])):
                    for row in range(row_tile * tile, min((row_tile + 1) * tile, output.shape[0])):
                        value = left[row_at[row] + k_at[k]]
                        if value == np.float32(0):
                            continue
                        for run in range(count):
                            for column in range(runs[run, 0], runs[run, 1]):
                                output[row, column] += value * right[k, column]


@inlined
def _flushed(value):  # type: ignore[no-untyped-def]
    """``value``, or zero of its sign if it is subnormal."""
    return np.float32(np.copysign(np.float32(0.0), value)) if abs(value) < np.float32(2.0**-126) else value


@compiled
def add_tiles_flushed(
    left: Values,
    row_at: Order,
    k_at: Order,
    right: Values,
    tile: int,
    k_tiles: Order,
    left_present: Tiles,
    right_present: Tiles,
    kept: Tiles,
    output: Values,
) -> None:
    """`add_tiles` with every rule: subnormal products and sums become zero, a pair with a zero is skipped."""
    runs = np.empty((right_present.shape[1], 2), dtype=np.uint64)  # unsigned: no check for negative indices
    for first in range(0, kept.shape[1], max(1, COLUMN_BLOCK // tile)):
        for row_tile in range(kept.shape[0]):
            for k_tile in k_tiles:
                if not left_present[row_tile, k_tile]:
                    continue
                count = _find_runs(right_present[k_tile], kept[row_tile], tile, output.shape[1], first, runs)
                for row in range(row_tile * tile, min((row_tile + 1) * tile, output.shape[0])):
                    for k in range(k_tile * tile, min((k_tile + 1) * tile, right.shape[0])):
                        value = left[row_at[row] + k_at[k]]
                        if value == np.float32(0):
                            continue
                        for run in range(count):
                            for column in range(runs[run, 0], runs[run, 1]):
                                factor, before = right[k, column], output[row, column]
                                total = _flushed(np.float32(before + _flushed(np.float32(value * factor))))
                                output[row, column] = total if factor != np.float32(0) else before
