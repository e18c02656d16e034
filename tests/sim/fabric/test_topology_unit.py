"""The model of the topology unit against its gates, cycle by cycle, and what more blocks cost."""

import numpy as np
import pytest

from acf.sim.fabric.topology_unit import TopologyUnit, moved_blocks, updates_of

READ, WRITE = 3, 2


def model_cycles(unit: TopologyUnit, before: np.ndarray, after: np.ndarray, moves: int) -> int:
    indices = unit.index_cycles(after) + unit.index_cycles(after.T)
    return unit.select_cycles(before, moves) + indices + unit.finish_cycles(after, moves)


@pytest.mark.parametrize(("rows", "columns", "moves"), [(3, 5, 1), (5, 6, 3), (2, 37, 2), (8, 8, 4)])
def test_an_update_takes_the_cycles_of_the_gates(rows: int, columns: int, moves: int) -> None:
    pytest.importorskip("amaranth")
    from tests.rtl.device.topology.unit_bench import run_update

    rng = np.random.default_rng(rows)
    before = rng.random((rows, columns)) < 0.6
    before[:, 0], before[0] = True, True
    before[-1, -1] = before[-1, -2] = before[-1, -3] = False
    seen = run_update(before, moves, tile=8, read_cycles=READ)
    unit = TopologyUnit(flit_words=4, score_flits=2, block_flits=(8, 16, 16), read_cycles=READ, write_cycles=WRITE)
    assert not seen.failed
    assert seen.cycles == model_cycles(unit, before, seen.after, moves)


def test_blocks_move_as_the_policy_asks_for_and_a_sorter_takes_some_at_a_time() -> None:
    present = np.zeros((40, 40), dtype=bool)
    present[:10] = True
    assert moved_blocks(present) == 120
    assert moved_blocks(~present & (np.arange(40) > 0)) == 351
    assert moved_blocks(np.ones((4, 4), dtype=bool)) == 0
    assert [updates_of(moves) for moves in (0, 64, 65, 351)] == [0, 1, 2, 6]
