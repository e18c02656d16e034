"""TensorDash's scheduler: which staged values each lane takes in a cycle.

The staging buffer holds ``depth`` steps of ``lanes`` values. Lanes choose one after another; each takes the first
effectual value among its moves, in priority order, and so removes it for the lanes after it.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from acf.sim.jit import compiled

Moves = tuple[tuple[int, int], ...]
"""Options of a lane in priority order: (steps ahead, lanes to the right); lanes form a ring."""

PAPER_MOVES: Moves = ((0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (1, -1), (2, 2), (3, 3))
"""TensorDash section III: own lane now, own lane 1 to 3 steps ahead, then four neighbours ahead."""

MAXIMUM_TABLE_BITS = 16


@lru_cache(maxsize=16)
def schedule_table(lanes: int, depth: int, moves: Moves) -> NDArray[np.uint16]:
    """What is left of every possible staging buffer after one cycle: uint16 ``[2 ** (lanes * depth)]``.

    Bit ``step * lanes + lane`` is set where a value still has to be multiplied.
    """
    left = np.arange(2 ** (lanes * depth), dtype=np.uint32)
    for lane in range(lanes):
        free = np.ones(left.shape, dtype=bool)
        for step, offset in moves:
            bit = np.uint32(1 << (step * lanes + (lane + offset) % lanes))
            takes = free & ((left & bit) != 0)
            left[takes] &= ~bit
            free &= ~takes
    return left.astype(np.uint16)


@lru_cache(maxsize=16)
def drained_table(lanes: int, depth: int) -> NDArray[np.uint8]:
    """Leading steps of every possible staging buffer that hold nothing: uint8 ``[2 ** (lanes * depth)]``."""
    windows = np.arange(2 ** (lanes * depth), dtype=np.uint32)
    drained = np.zeros(windows.shape, dtype=np.uint8)
    for step in range(depth):
        empty_so_far = (windows & np.uint32((1 << ((step + 1) * lanes)) - 1)) == 0
        drained += empty_so_far.astype(np.uint8)
    return drained


def lane_words(pattern: NDArray[np.bool_], lanes: int) -> NDArray[np.uint16]:
    """Pack a bool ``[rows, k]`` pattern into one word per step: uint16 ``[rows, ceil(k / lanes)]``."""
    rows, length = pattern.shape
    steps = -(-length // lanes)
    padded = np.zeros((rows, steps * lanes), dtype=np.uint16)
    padded[:, :length] = pattern
    weights = (1 << np.arange(lanes)).astype(np.uint16)
    words: NDArray[np.uint16] = (padded.reshape(rows, steps, lanes) * weights).sum(axis=2, dtype=np.uint16)
    return words


@compiled
def tile_cycles(
    words: NDArray[np.uint16],
    left: NDArray[np.uint16],
    drained: NDArray[np.uint8],
    tile_rows: int,
    lanes: int,
    depth: int,
) -> NDArray[np.int64]:
    """Cycles of every group of ``tile_rows`` rows that advance together: int64 ``[ceil(rows / tile_rows)]``.

    ``words [rows, steps]`` holds one step's lanes per word. Each cycle every row schedules its own buffer, then all
    advance by the smallest number of drained steps and refill.
    """
    rows, steps = words.shape
    groups = (rows + tile_rows - 1) // tile_rows
    cycles = np.zeros(groups, dtype=np.int64)
    windows = np.zeros(tile_rows, dtype=np.int64)
    for group in range(groups):
        first = group * tile_rows
        present = min(tile_rows, rows - first)
        for row in range(present):
            windows[row] = 0
            for step in range(min(depth, steps)):
                windows[row] |= np.int64(words[first + row, step]) << (step * lanes)
        position = 0
        while position < steps:
            advance = depth
            for row in range(present):
                windows[row] = left[windows[row]]
                if drained[windows[row]] < advance:
                    advance = int(drained[windows[row]])
            cycles[group] += 1
            position += advance
            for row in range(present):
                windows[row] >>= advance * lanes
                for step in range(depth - advance, depth):
                    if position + step < steps:
                        windows[row] |= np.int64(words[first + row, position + step]) << (step * lanes)
    return cycles
