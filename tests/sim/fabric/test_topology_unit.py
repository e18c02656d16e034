"""The model of the topology unit against its gates, cycle by cycle, and what more blocks cost."""

from dataclasses import replace

import numpy as np
import pytest

from acf.sim.fabric.topology_unit import TopologyUnit, moved_blocks, updates_of

READ, WRITE = 3, 2


UNIT = TopologyUnit(flit_words=4, score_flits=2, block_flits=(8, 16, 16), read_cycles=READ, write_cycles=WRITE)


def model_cycles(before: np.ndarray, after: np.ndarray, moves: int) -> int:
    """All of an update but what it writes of the weight gradient."""
    indices = UNIT.index_cycles(after) + UNIT.index_cycles(after.T)
    return UNIT.select_cycles(before, moves) + indices + UNIT.move_cycles(moves)


def some_blocks(rows: int, columns: int) -> np.ndarray:
    before = np.random.default_rng(rows).random((rows, columns)) < 0.6
    before[:, 0], before[0] = True, True
    before[-1, -1] = before[-1, -2] = before[-1, -3] = False
    return before


@pytest.mark.parametrize(("rows", "columns", "moves"), [(3, 5, 1), (5, 6, 3), (2, 37, 2), (8, 8, 4)])
def test_an_update_takes_the_cycles_of_the_gates(rows: int, columns: int, moves: int) -> None:
    pytest.importorskip("amaranth")
    from tests.rtl.device.topology.unit_bench import run_update

    before = some_blocks(rows, columns)
    seen = run_update(before, moves, tile=8, read_cycles=READ)
    assert not seen.failed
    assert seen.cycles == model_cycles(before, seen.after, moves) + UNIT.mask_cycles(seen.after)


def test_two_moments_of_a_moved_block_take_the_cycles_of_the_gates() -> None:
    pytest.importorskip("amaranth")
    from tests.rtl.device.topology.unit_bench import run_update

    before, unit = some_blocks(3, 5), replace(UNIT, block_flits=(8, 16, 32))
    seen = [run_update(before, 2, tile=8, read_cycles=READ, two_moments=each) for each in (False, True)]
    assert seen[1].cycles - seen[0].cycles == unit.move_cycles(2) - UNIT.move_cycles(2) == 2 * 16 * (4 + WRITE)


@pytest.mark.parametrize(("rows", "columns", "group_columns", "tiles"), [(3, 5, 1, 2), (5, 6, 2, 3), (8, 8, 4, 1)])
def test_listing_the_output_tiles_of_a_split_k_weight_gradient_takes_the_cycles_of_the_gates(
    rows: int, columns: int, group_columns: int, tiles: int
) -> None:
    pytest.importorskip("amaranth")
    from tests.rtl.device.topology.unit_bench import Group, run_update

    before = some_blocks(rows, columns)
    seen = run_update(before, 2, tile=8, read_cycles=READ, group=Group(group_columns, tiles))
    listed = UNIT.list_cycles(seen.after, group_columns * tiles)
    assert not seen.failed
    assert seen.cycles == model_cycles(before, seen.after, 2) + listed


def test_blocks_move_as_the_policy_asks_for_and_a_sorter_takes_some_at_a_time() -> None:
    present = np.zeros((40, 40), dtype=bool)
    present[:10] = True
    assert moved_blocks(present) == 120
    assert moved_blocks(~present & (np.arange(40) > 0)) == 351
    assert moved_blocks(np.ones((4, 4), dtype=bool)) == 0
    assert [updates_of(moves) for moves in (0, 64, 65, 351)] == [0, 1, 2, 6]
