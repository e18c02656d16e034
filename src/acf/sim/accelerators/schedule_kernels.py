"""Inner loops of TensorDash's scheduler over packed rows, compiled; `scheduler` calls them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled


class Tile(NamedTuple):
    """A tile of PEs and its work: ``rows`` that advance together through ``steps`` of ``lanes`` values.

    Staging buffers are ``depth`` steps deep; scratchpads of ``banks`` refill at most as many steps in a cycle.
    """

    rows: int
    lanes: int
    depth: int
    banks: int
    steps: int


@compiled
def bits_at(words: NDArray[np.uint64], row: int, position: int, count: int) -> np.uint64:
    """``count`` bits (1 to 64) of a packed row from bit ``position`` on; zeros beyond its end."""
    index = position >> 6
    if index >= words.shape[1]:
        return np.uint64(0)
    shift = np.uint64(position & 63)
    bits = words[row, index] >> shift
    if shift > np.uint64(0) and index + 1 < words.shape[1]:
        bits |= words[row, index + 1] << (np.uint64(64) - shift)
    return np.uint64(bits & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - count)))


@compiled
def table_cycles(
    words: NDArray[np.uint64],
    left: NDArray[np.uint16],
    drained: NDArray[np.uint8],
    tile: Tile,
    first_group: int,
    cycles: NDArray[np.int64],
) -> None:
    """Fill ``cycles`` for the groups from ``first_group`` on; a staging buffer is an index into ``left``.

    The last steps of a row need no refilling.
    """
    tile_rows, lanes, depth, banks, steps = tile
    windows = np.zeros(tile_rows, dtype=np.uint64)
    for group in range(cycles.size):
        first = (first_group + group) * tile_rows
        present = min(tile_rows, words.shape[0] - first)
        for row in range(present):
            windows[row] = bits_at(words, first + row, 0, depth * lanes)
        position, count = 0, 0
        while position < steps:
            advance = depth if position + depth + banks >= steps else min(depth, banks)
            for row in range(present):
                rest = left[windows[row]]
                windows[row] = rest
                advance = min(advance, int(drained[rest]))
            count += 1
            position += advance
            new_at, new_bits = (position + depth - advance) * lanes, advance * lanes
            kept_bits = np.uint64((depth - advance) * lanes)
            for row in range(present):
                fresh = bits_at(words, first + row, new_at, new_bits)
                windows[row] = (windows[row] >> np.uint64(new_bits)) | (fresh << kept_bits)
        cycles[group] = count


@compiled
def take_one_cycle(
    staged: NDArray[np.uint64], levels: NDArray[np.uint64], pattern: NDArray[np.int64], lanes: int
) -> None:
    """Remove from ``staged [depth]``, one word of lanes per step, what the lanes take in one cycle.

    ``levels`` are masks of lanes that decide together, ``pattern [moves, 2]`` the (step, offset in the ring) of each
    move. Lanes of a level cannot reach the same value, so that all of them are served by one rotation per move.
    """
    ring = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - lanes)
    for level in range(levels.size):
        free = levels[level]
        for move in range(pattern.shape[0]):
            step, offset = pattern[move, 0], pattern[move, 1]
            word = staged[step]
            if word == np.uint64(0):
                continue
            if offset == 0:
                takers = word & free
                staged[step] = word & ~takers
            else:
                right, back = np.uint64(offset), np.uint64(lanes - offset)
                takers = ((word >> right) | (word << back)) & ring & free
                staged[step] = word & ~(((takers << right) | (takers >> back)) & ring)
            free &= ~takers


@compiled
def level_cycles(
    words: NDArray[np.uint64],
    levels: NDArray[np.uint64],
    pattern: NDArray[np.int64],
    tile: Tile,
    first_group: int,
    cycles: NDArray[np.int64],
) -> None:
    """As `table_cycles`, for staging buffers of any depth and up to 64 lanes, by bit operations."""
    tile_rows, lanes, depth, banks, steps = tile
    staged = np.zeros((tile_rows, depth), dtype=np.uint64)
    for group in range(cycles.size):
        first = (first_group + group) * tile_rows
        present = min(tile_rows, words.shape[0] - first)
        for row in range(present):
            for step in range(depth):
                staged[row, step] = bits_at(words, first + row, step * lanes, lanes)
        position, count = 0, 0
        while position < steps:
            advance = depth if position + depth + banks >= steps else min(depth, banks)
            for row in range(present):
                take_one_cycle(staged[row], levels, pattern, lanes)
                emptied = 0
                while emptied < advance and staged[row, emptied] == np.uint64(0):
                    emptied += 1
                advance = emptied
            count += 1
            position += advance
            for row in range(present):
                for step in range(depth - advance):
                    staged[row, step] = staged[row, step + advance]
                for step in range(depth - advance, depth):
                    staged[row, step] = bits_at(words, first + row, (position + step) * lanes, lanes)
        cycles[group] = count
