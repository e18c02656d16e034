"""Move patterns of TensorDash: which staged values a lane may take, and which lanes may decide at the same time."""

from acf.errors import ArchitectureError

Moves = tuple[tuple[int, int], ...]
"""Options of a lane in priority order: (steps ahead, lanes to the right); lanes form a ring."""

PAPER_MOVES: Moves = ((0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (1, -1), (2, 2), (3, 3))
"""TensorDash section III, 4 lanes, 4 deep: own lane now, own lane 1 to 3 steps ahead, then four neighbours ahead."""

TWO_DEEP_MOVES: Moves = ((0, 0), (1, 0), (1, 1), (1, -1))
"""TensorDash Fig. 3c, 2 deep: own lane now and next, both neighbours next."""

THREE_DEEP_MOVES: Moves = ((0, 0), (1, 0), (2, 0), (1, 1))
"""3 deep with four moves, as Fig. 12 has it; the paper does not print the pattern, so this one is ours."""

FIVE_DEEP_MOVES: Moves = ((0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (1, -1), (2, 2), (4, 3))
"""5 deep with eight moves for Fig. 12: the paper's pattern, its last move one step further; not printed, so ours."""

WIDE_MOVES: Moves = ((0, 0), (1, 0), (2, 0), (1, -1), (1, 1), (2, -2), (2, 2), (1, -3))
"""16 lanes, 3 deep, eight moves for Fig. 14; the paper prints the six levels that follow, but not the pattern."""


def check_moves(moves: Moves, lanes: int, depth: int) -> None:
    """Refuse a pattern that leaves the buffer or the ring, repeats a move or lacks the dense one."""
    for step, offset in moves:
        if not 0 <= step < depth:
            raise ArchitectureError(
                f"moves reach {step} steps ahead, the staging buffer is {depth} deep; "
                f"keep every move's step within 0 to {depth - 1}"
            )
        if abs(offset) >= lanes:
            raise ArchitectureError(
                f"moves reach {offset} lanes aside, the ring has {lanes} lanes; "
                f"keep every move's offset within {1 - lanes} to {lanes - 1}"
            )
    if (0, 0) not in moves:
        raise ArchitectureError("moves lack (0, 0), the dense schedule; without it a lane may never drain, add it")
    if len({(step, offset % lanes) for step, offset in moves}) < len(moves):
        raise ArchitectureError(f"moves {moves} name a place of the {lanes}-lane ring twice; give each place once")


def lane_levels(lanes: int, moves: Moves) -> tuple[tuple[int, ...], ...]:
    """Lanes grouped so that no two of a level can reach the same value; a lane joins the first level that lets it.

    Levels decide one after another, the lanes of one at the same time.

    >>> len(lane_levels(4, PAPER_MOVES)), len(lane_levels(16, WIDE_MOVES))
    (4, 6)
    """
    reach = [{(step, (lane + offset) % lanes) for step, offset in moves} for lane in range(lanes)]
    levels: list[list[int]] = []
    for lane in range(lanes):
        for level in levels:
            if all(reach[lane].isdisjoint(reach[other]) for other in level):
                level.append(lane)
                break
        else:
            levels.append([lane])
    return tuple(tuple(level) for level in levels)
