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
def magnitude_range(values: Values) -> tuple[int, int]:
    """Bits of the least non-zero and of the greatest magnitude of a vector; the former 2**32 where all are zero."""
    bits = values.view(np.uint32)
    least, greatest = np.uint32(0xFFFFFFFF), np.uint32(0)
    for place in range(bits.size):
        magnitude = bits[place] & np.uint32(0x7FFFFFFF)
        below = np.uint32(magnitude - np.uint32(1))  # zero wraps to the greatest number
        least = below if below < least else least
        greatest = magnitude if magnitude > greatest else greatest
    return np.int64(least) + 1, np.int64(greatest)


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


@inlined
def _find_runs(right_tiles, kept_tiles, tile, columns, runs):  # type: ignore[no-untyped-def]
    """Fill ``runs [tiles, 2]`` with spans of columns whose tiles are present and kept; how many there are."""
    count = 0
    for column_tile in range(right_tiles.size):
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
    right: Values,
    tile: int,
    k_tiles: Order,
    left_present: Tiles,
    right_present: Tiles,
    kept: Tiles,
    output: Values,
) -> None:
    """``output += left @ right`` where nothing is flushed; products of bf16 are exact in float32.

    ``left_present``, ``right_present`` and ``kept`` mark tiles of the operands and of the output; every sum takes the
    ``k_tiles`` in this order, and rising k in each.
    """
    runs = np.empty((right_present.shape[1], 2), dtype=np.int64)
    for row_tile in range(kept.shape[0]):
        for k_tile in k_tiles:
            if not left_present[row_tile, k_tile]:
                continue
            count = _find_runs(right_present[k_tile], kept[row_tile], tile, output.shape[1], runs)
            if not count:
                continue
            for row in range(row_tile * tile, min((row_tile + 1) * tile, left.shape[0])):
                for k in range(k_tile * tile, min((k_tile + 1) * tile, left.shape[1])):
                    value = left[row, k]
                    if value == np.float32(0):
                        continue
                    for run in range(count):
                        start, stop = runs[run, 0], runs[run, 1]
                        sums, factors = output[row, start:stop], right[k, start:stop]
                        for column in range(stop - start):
                            sums[column] += value * factors[column]


@compiled
def add_tiles_flushed(
    left: Values,
    right: Values,
    tile: int,
    k_tiles: Order,
    left_present: Tiles,
    right_present: Tiles,
    kept: Tiles,
    output: Values,
) -> None:
    """`add_tiles` with every rule: subnormal products and sums become zero, a pair with a zero is skipped."""
    least, zero = np.float32(2.0**-126), np.float32(0.0)
    runs = np.empty((right_present.shape[1], 2), dtype=np.int64)
    for row_tile in range(kept.shape[0]):
        for k_tile in k_tiles:
            if not left_present[row_tile, k_tile]:
                continue
            count = _find_runs(right_present[k_tile], kept[row_tile], tile, output.shape[1], runs)
            for row in range(row_tile * tile, min((row_tile + 1) * tile, left.shape[0])):
                for k in range(k_tile * tile, min((k_tile + 1) * tile, left.shape[1])):
                    value = left[row, k]
                    if value == zero:
                        continue
                    for run in range(count):
                        for column in range(runs[run, 0], runs[run, 1]):
                            factor, before = right[k, column], output[row, column]
                            product = np.float32(value * factor)
                            product = product if not abs(product) < least else np.float32(np.copysign(zero, product))
                            total = np.float32(before + product)
                            total = total if not abs(total) < least else np.float32(np.copysign(zero, total))
                            output[row, column] = total if factor != zero else before
