"""TensorDash's scheduler against a plain walk through the paper's rules."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from acf.lowering import PackedRows
from acf.sim.accelerators.moves import (
    FIVE_DEEP_MOVES,
    PAPER_MOVES,
    THREE_DEEP_MOVES,
    TWO_DEEP_MOVES,
    WIDE_MOVES,
    Moves,
    lane_levels,
)
from acf.sim.accelerators.scheduler import pair_cycles, schedule_table, tile_cycles

PES: list[tuple[int, int, Moves]] = [
    (4, 4, PAPER_MOVES),
    (4, 2, TWO_DEEP_MOVES),
    (4, 3, THREE_DEEP_MOVES),
    (8, 2, TWO_DEEP_MOVES),
    (4, 1, ((0, 0),)),
    (1, 4, ((0, 0), (1, 0), (3, 0))),
    (5, 3, WIDE_MOVES[:5]),
]
WIDE_PES: list[tuple[int, int, Moves]] = [
    (16, 3, WIDE_MOVES),
    (4, 5, FIVE_DEEP_MOVES),
    (16, 5, FIVE_DEEP_MOVES),
    (64, 2, TWO_DEEP_MOVES),
    (33, 3, WIDE_MOVES),
]


def walk(rows: NDArray[np.bool_], lanes: int, depth: int, moves: Moves) -> tuple[int, list[list[tuple[int, int]]]]:
    """Cycles, and the (row, value) pairs multiplied in each, of one tile, one value at a time."""
    length = -(-rows.shape[1] // lanes)
    todo = np.zeros((rows.shape[0], length, lanes), dtype=bool)
    todo.reshape(rows.shape[0], -1)[:, : rows.shape[1]] = rows
    position, taken = 0, []
    while position < length:
        cycle = []
        drained = depth
        for row in range(rows.shape[0]):
            for lane in (lane for level in lane_levels(lanes, moves) for lane in level):
                for step, offset in moves:
                    where = position + step, (lane + offset) % lanes
                    if where[0] < length and todo[row][where]:
                        todo[row][where] = False
                        cycle.append((row, where[0] * lanes + where[1]))
                        break
            left = 0
            while left < depth and (position + left >= length or not todo[row, position + left].any()):
                left += 1
            drained = min(drained, left)
        taken.append(cycle)
        position += drained
    return len(taken), taken


def fast(
    rows: NDArray[np.bool_], tile_rows: int, lanes: int, depth: int, moves: Moves, use_table: bool = True
) -> list[int]:
    return tile_cycles(PackedRows.from_bool(rows), tile_rows, lanes, depth, moves, use_table=use_table).tolist()


@given(
    st.integers(1, 4),
    st.integers(0, 200),
    st.floats(0.0, 1.0),
    st.sampled_from(PES + WIDE_PES),
    st.integers(0, 10_000),
)
def test_rows_are_scheduled_as_the_rules_say(
    row_count: int, length: int, density: float, pe: tuple[int, int, Moves], seed: int
) -> None:
    lanes, depth, moves = pe
    rows = np.random.default_rng(seed).random((row_count, length)) < density
    cycles, taken = walk(rows, lanes, depth, moves)
    assert fast(rows, row_count, lanes, depth, moves) == [cycles]
    pairs = [pair for cycle in taken for pair in cycle]
    assert sorted(pairs) == sorted(map(tuple, np.argwhere(rows).tolist()))  # each pair once, none lost
    steps = -(-length // lanes)
    assert -(-steps // depth) <= cycles <= steps  # never slower than dense, never above depth times as fast


@given(st.integers(1, 9), st.integers(0, 200), st.floats(0.0, 1.0), st.sampled_from(PES), st.integers(0, 10_000))
def test_table_and_bit_operations_agree(
    row_count: int, length: int, density: float, pe: tuple[int, int, Moves], seed: int
) -> None:
    rows = np.random.default_rng(seed).random((row_count, length)) < density
    assert fast(rows, 4, *pe, use_table=True) == fast(rows, 4, *pe, use_table=False)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 90), st.floats(0.0, 1.0), st.integers(0, 10_000))
def test_two_sided_tiles_wait_for_the_pe_with_most_pairs(m: int, n: int, k: int, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.random((m, k)) < density, rng.random((n, k)) < density
    cycles = pair_cycles(PackedRows.from_bool(a), PackedRows.from_bool(b), (2, 3), 4, 4, PAPER_MOVES)
    expected = [
        walk((a[i : i + 2, None] & b[None, j : j + 3]).reshape(-1, k), 4, 4, PAPER_MOVES)[0]
        for i in range(0, m, 2)
        for j in range(0, n, 3)
    ]
    assert cycles.tolist() == expected


def test_lanes_that_share_no_value_decide_in_one_level() -> None:
    """Paper: four levels for four lanes, one lane each; six for 16 lanes, 3 deep, 8 moves."""
    assert lane_levels(4, PAPER_MOVES) == ((0,), (1,), (2,), (3,))
    assert lane_levels(16, WIDE_MOVES) == ((0, 5, 10), (1, 6, 11), (2, 7, 12), (3, 8, 13), (4, 9, 14), (15,))
    assert lane_levels(4, ((0, 0), (1, 0))) == ((0, 1, 2, 3),)


def test_lanes_choose_in_the_order_the_paper_states() -> None:
    """Hand-worked: three values of lane 1 and one of lane 2; every lane takes its first option in priority order."""
    table = schedule_table(4, 4, PAPER_MOVES)

    def window(*values: tuple[int, int]) -> int:
        return sum(1 << (step * 4 + lane) for step, lane in values)

    # Lane 0 has nothing of its own and takes (1, 1) beside it; lane 1 takes (0, 1), lane 2 its own (1, 2),
    # lane 3 reaches (2, 1) two steps and two lanes on.
    assert table[window((0, 1), (1, 1), (2, 1), (1, 2))] == 0
    # Lane 2 takes its own (3, 2) before (3, 1), which it could also reach; nobody else reaches (3, 1) but lane 1.
    assert table[window((0, 1), (3, 1), (3, 2))] == window((3, 1))
    # The lane's own later step comes before a neighbour's earlier one: lane 0 takes (3, 0), lane 1 its own (0, 1),
    # and (1, 1) is left for lane 2.
    assert table[window((3, 0), (0, 1), (1, 1))] == 0
    # With lane 2 busy, nobody is left for (1, 1).
    assert table[window((3, 0), (0, 1), (1, 1), (0, 2))] == window((1, 1))


def test_rows_of_a_tile_wait_for_the_densest() -> None:
    rows = np.zeros((4, 64), dtype=bool)
    rows[2] = True
    assert fast(rows, 4, 4, 4, PAPER_MOVES) == [16]
    assert fast(rows, 1, 4, 4, PAPER_MOVES) == [4, 4, 16, 4]


def test_a_last_tile_with_missing_rows_waits_for_nobody() -> None:
    rows = np.ones((5, 16), dtype=bool)
    rows[4] = False
    assert fast(rows, 4, 4, 4, PAPER_MOVES) == [4, 1]


@pytest.mark.parametrize(("zeros", "paper_speedup"), [(0.2, 1.23), (0.9, 3.7), (0.99, 3.99)])
def test_random_tensors_gain_what_the_paper_reports(zeros: float, paper_speedup: float) -> None:
    """Fig. 15 of the paper within 5 %: iid zeros, 4 rows in a tile, 4 lanes, 4 deep; 3x3 x 64 channels."""
    rows = np.random.default_rng(1).random((512, 576)) >= zeros
    speedup = 128 * 144 / sum(fast(rows, 4, 4, 4, PAPER_MOVES))
    assert speedup == pytest.approx(paper_speedup, rel=0.05)
