"""TensorDash's scheduler: how many cycles rows of packed bits take.

The staging buffer holds ``depth`` steps of ``lanes`` values. Levels of lanes decide one after another; each lane takes
the first effectual value among its moves, in priority order, and so removes it for the levels after it. Where the
buffer has at most 16 bits, what a cycle leaves of it is looked up; wider ones are scheduled by bit operations.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from acf.lowering import PackedRows
from acf.sim.accelerators.moves import Moves, lane_levels
from acf.sim.accelerators.schedule_kernels import Tile, level_cycles, table_cycles

TABLE_BITS = 16
MAXIMUM_LANES = 64
_THREADS = os.cpu_count() or 1
_GROUPS_PER_TASK = 256  # at most: enough work to hide the hand-over to a thread


@lru_cache(maxsize=16)
def schedule_table(lanes: int, depth: int, moves: Moves) -> NDArray[np.uint16]:
    """What is left of every possible staging buffer after one cycle: uint16 ``[2 ** (lanes * depth)]``.

    Bit ``step * lanes + lane`` is set where a value still has to be multiplied.
    """
    left = np.arange(2 ** (lanes * depth), dtype=np.uint32)
    for lane in (lane for level in lane_levels(lanes, moves) for lane in level):
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


def tile_cycles(
    rows: PackedRows,
    tile_rows: int,
    lanes: int,
    depth: int,
    moves: Moves,
    banks: int | None = None,
    use_table: bool = True,
) -> NDArray[np.int64]:
    """Cycles of every group of ``tile_rows`` rows that advance together: int64 ``[ceil(rows / tile_rows)]``.

    Each cycle every row schedules its own buffer, then all advance by the smallest number of drained steps and refill,
    at most ``banks`` steps in a cycle, as many as the scratchpad has banks (None: as many as the buffer is deep).
    Groups do not depend on each other and are shared among the machine's cores.
    """
    steps = -(-rows.length // lanes)
    groups = -(-rows.rows // tile_rows)
    cycles = np.zeros(groups, dtype=np.int64)
    tile = Tile(tile_rows, lanes, depth, depth if banks is None else banks, steps)
    task = min(_GROUPS_PER_TASK, 1 + groups // (4 * _THREADS))
    if use_table and lanes * depth <= TABLE_BITS:
        left, drained = schedule_table(lanes, depth, moves), drained_table(lanes, depth)

        def run(first: int) -> None:
            part = slice(first, first + task)
            table_cycles(rows.words, left, drained, tile, first, cycles[part])
    else:
        levels = np.array([sum(1 << lane for lane in level) for level in lane_levels(lanes, moves)], dtype=np.uint64)
        pattern = np.array([(step, offset % lanes) for step, offset in moves], dtype=np.int64)

        def run(first: int) -> None:
            part = slice(first, first + task)
            level_cycles(rows.words, levels, pattern, tile, first, cycles[part])

    _run_in_threads(run, range(0, groups, task))
    return cycles


def _run_in_threads(run: Callable[[int], None], starts: Sequence[int]) -> None:
    """Call ``run`` for every start; the compiled loops inside release the interpreter's lock."""
    if len(starts) == 1:
        run(starts[0])
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(run, starts):
            pass


def pair_cycles(
    left: PackedRows,
    right: PackedRows,
    tile: tuple[int, int],
    lanes: int,
    depth: int,
    moves: Moves,
    banks: int | None = None,
) -> NDArray[np.int64]:
    """Cycles of every tile of ``(rows, columns)`` PEs when each PE schedules the non-zero pairs of its own vectors.

    All PEs of a tile advance together. One entry per tile, tiles of a row group side by side; the work is that of the
    whole product, since no schedule serves two tiles.
    """
    rows, columns = tile
    column_groups = -(-right.rows // columns)
    columns_padded = np.zeros((column_groups * columns, right.words.shape[1]), dtype=np.uint64)
    columns_padded[: right.rows] = right.words
    by_group = columns_padded.reshape(column_groups, 1, columns, -1)
    cycles = []
    for first in range(0, left.rows, rows):
        pairs = left.words[first : first + rows][None, :, None, :] & by_group
        pes = pairs.shape[1] * columns
        packed = PackedRows(pairs.reshape(column_groups * pes, -1), left.length)
        cycles.append(tile_cycles(packed, pes, lanes, depth, moves, banks))
    return np.concatenate(cycles)
