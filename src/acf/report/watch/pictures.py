"""Masks as small pictures: shares of present blocks on a grid that fits, and characters for the terminal."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SHADES = " ░▒▓█"
"""From an empty cell to a full one."""

TICKS = "▁▂▃▄▅▆▇█"
"""From the least value of a curve to the greatest."""


def shrunk(mask: NDArray[np.bool_], most_rows: int, most_cols: int) -> NDArray[np.float64]:
    """Shares of present blocks in the cells of a grid of at most that size; cells are as equal as they can be.

    >>> shrunk(np.eye(4, dtype=bool), 2, 2).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    values = mask.astype(np.float64)
    for axis, most in enumerate((most_rows, most_cols)):
        size = values.shape[axis]
        if size > most:
            starts = np.arange(most) * size // most
            counts = np.diff(np.append(starts, size))
            sums = np.add.reduceat(values, starts, axis=axis)
            values = sums / (counts[:, None] if axis == 0 else counts[None, :])
    return values


def mask_lines(mask: NDArray[np.bool_], most_rows: int = 8, most_cols: int = 28) -> list[str]:
    """A mask in characters; any block that is present shows, and a full cell is a cell without a gap.

    >>> mask_lines(np.eye(2, dtype=bool))
    ['█ ', ' █']
    """
    shares = shrunk(mask, most_rows, most_cols)
    levels = np.where(shares >= 1.0, len(SHADES) - 1, np.ceil(shares * (len(SHADES) - 2))).astype(int)
    return ["".join(SHADES[level] for level in row) for row in levels.tolist()]


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """A curve in one line of characters: means over ``width`` equal parts.

    >>> sparkline([3.0, 2.0, 1.0])
    '█▅▁'
    """
    if not values:
        return ""
    parts = [float(part.mean()) for part in np.array_split(np.array(values), min(width, len(values)))]
    least, span = min(parts), max(parts) - min(parts)
    return "".join(TICKS[round((value - least) / span * (len(TICKS) - 1)) if span else 0] for value in parts)
