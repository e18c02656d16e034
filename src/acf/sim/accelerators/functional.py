"""TensorDash's PEs with values in them: staging buffers, select signals, multiplexers, accumulators.

Slow and plain on purpose: it computes what the counting model only counts, and both must agree on every cycle.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.errors import ArchitectureError
from acf.sim.accelerators.moves import lane_levels
from acf.sim.accelerators.tensordash import TensorDash


@dataclass(frozen=True, eq=False)
class TileRun:
    """Outputs ``values [rows, columns]`` of one tile, and the cycles it took."""

    values: NDArray[np.int64]
    cycles: int


@dataclass(frozen=True)
class Schedule:
    """One scheduler's choice for a cycle: for every lane the (step, lane) it takes, None where it has nothing."""

    selects: tuple[tuple[int, int] | None, ...]
    left: NDArray[np.bool_]


def schedule(effectual: NDArray[np.bool_], spec: TensorDash) -> Schedule:
    """Choose for all lanes, level by level, from ``effectual [depth, lanes]``."""
    left = effectual.copy()
    selects: list[tuple[int, int] | None] = [None] * spec.lanes
    for lane in (lane for level in lane_levels(spec.lanes, spec.moves) for lane in level):
        for step, offset in spec.moves:
            place = step, (lane + offset) % spec.lanes
            if left[place]:
                left[place] = False
                selects[lane] = place
                break
    return Schedule(tuple(selects), left)


def run_tile(a: NDArray[np.int64], b: NDArray[np.int64], spec: TensorDash) -> TileRun:
    """Multiply ``a [rows, k]`` by ``b [columns, k]`` transposed on one tile; zeros of a, or of both, are skipped.

    Both staging buffers hold the same steps; a row's select signals drive its PEs' multiplexers on both sides.
    """
    steps = -(-a.shape[1] // spec.lanes)
    a_steps, b_steps = (_by_step(values, steps + spec.depth, spec.lanes) for values in (a, b))
    todo = _effectual(a_steps, b_steps, spec.sides)
    values = np.zeros((a.shape[0], b.shape[0]), dtype=np.int64)
    position, cycles = 0, 0
    while position < steps:
        window = slice(position, position + spec.depth)
        for row, column in np.ndindex(todo.shape[:2]):
            choice = schedule(todo[row, column, window], spec)
            todo[row, column, window] = choice.left
            pes = range(b.shape[0]) if spec.sides == 1 else [column]  # one scheduler serves a row, or one PE
            for pe in pes:
                values[row, pe] += _multiply(a_steps[row, window], b_steps[pe, window], choice)
        waiting = todo[:, :, window].any(axis=(0, 1, 3))
        drained = int(np.argmax(waiting)) if waiting.any() else spec.depth
        refills = position + spec.depth + spec.refilled_steps < steps
        position += min(drained, spec.refilled_steps) if refills else drained
        cycles += 1
    return TileRun(values, cycles)


def multiply(a: NDArray[np.int64], b: NDArray[np.int64], spec: TensorDash) -> NDArray[np.int64]:
    """``a [m, k] @ b [k, n]`` of integers, tile by tile, with zeros of a, or of both, skipped.

    >>> import numpy as np
    >>> from acf.sim.registry import spec
    >>> multiply(np.array([[0, 2, 0, 3]]), np.array([[1], [10], [100], [1000]]), spec("tensordash"))
    array([[3020]])
    """
    if a.shape[1] != b.shape[0]:
        raise ArchitectureError(
            f"a {list(a.shape)} and b {list(b.shape)} do not multiply; pass a as [m, k] and b as [k, n]"
        )
    product = np.zeros((a.shape[0], b.shape[1]), dtype=np.int64)
    for row in range(0, a.shape[0], spec.rows):
        for column in range(0, b.shape[1], spec.columns):
            rows, columns = slice(row, row + spec.rows), slice(column, column + spec.columns)
            product[rows, columns] = run_tile(a[rows], b[:, columns].T, spec).values
    return product


def _by_step(values: NDArray[np.int64], steps: int, lanes: int) -> NDArray[np.int64]:
    """``[vectors, k]`` as ``[vectors, steps, lanes]``, filled up with zeros."""
    filled = np.zeros((values.shape[0], steps * lanes), dtype=np.int64)
    filled[:, : values.shape[1]] = values
    return filled.reshape(values.shape[0], steps, lanes)


def _effectual(a: NDArray[np.int64], b: NDArray[np.int64], sides: int) -> NDArray[np.bool_]:
    """What each scheduler must see multiplied: ``[rows, 1 or columns, steps, lanes]``."""
    rows: NDArray[np.bool_] = (a != 0)[:, None]
    columns: NDArray[np.bool_] = (b != 0)[None]
    return rows.copy() if sides == 1 else rows & columns


def _multiply(a: NDArray[np.int64], b: NDArray[np.int64], choice: Schedule) -> int:
    """Sum of the products that the multiplexers bring to the lanes in one cycle."""
    return sum(int(a[place]) * int(b[place]) for place in choice.selects if place is not None)
