"""Scaling of what TensorDash adds to a tensor core with the geometry: an assumption, exact at the published point."""

PUBLISHED_ROWS, PUBLISHED_COLUMNS, PUBLISHED_DEPTH, PUBLISHED_MOVES = 4, 4, 4, 8
"""TensorDash, Table III and section III."""


def overhead_scales(rows: int, columns: int, depth: int, moves: int, sides: int) -> dict[str, float]:
    """Power and area per MAC of each part, relative to 4 x 4 PEs, 4 deep, 8 moves, one-sided.

    A multiplexer of n inputs is n - 1 of two. Every PE has one on the A side for each lane; schedulers and those of
    the B side belong to a row, staging buffers to a row or a column. Two-sided, every PE has all of them.

    >>> overhead_scales(4, 4, 4, 8, 1)
    {'schedulers': 1.0, 'a_multiplexers': 1.0, 'staging_buffers': 1.0}
    """
    multiplexer = (moves - 1) / (PUBLISHED_MOVES - 1)
    buffers = 2.0 if sides == 2 else 1 / rows + 1 / columns
    published_buffers = 1 / PUBLISHED_ROWS + 1 / PUBLISHED_COLUMNS
    return {
        "schedulers": multiplexer * (PUBLISHED_COLUMNS if sides == 2 else PUBLISHED_COLUMNS / columns),
        "a_multiplexers": multiplexer,
        "staging_buffers": buffers / published_buffers * depth / PUBLISHED_DEPTH,
    }
