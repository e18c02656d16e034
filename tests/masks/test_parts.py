"""Planning for a grid of blocks that is split into parts."""

import pytest
import torch

from acf.masks import (
    NEVER_REGROWN,
    BlockDST,
    Candidates,
    GradualPruning,
    GridParts,
    LayerState,
    Move,
    Shrink,
    plan,
    plan_in_parts,
)

GRID = (4, 4)
POLICY = BlockDST(total_steps=10, every=1, stop_at=1.0, schedule="constant", fraction=0.5)


def state_of(rows: torch.Tensor, cols: torch.Tensor, target: int) -> LayerState:
    generator = torch.Generator().manual_seed(0)
    present = torch.zeros(GRID, dtype=torch.bool)
    present[rows, cols] = True
    absent = torch.nonzero(~present)
    candidates = absent if target == rows.numel() else torch.stack([rows, cols], dim=1)
    squares = torch.rand(candidates.shape[0], generator=generator)
    return LayerState(
        rows=rows.int(),
        cols=cols.int(),
        magnitudes=torch.rand(rows.numel(), generator=generator),
        grown_at=torch.full((rows.numel(),), NEVER_REGROWN, dtype=torch.int32),
        candidates=Candidates(candidates[:, 0].int(), candidates[:, 1].int(), squares),
        grid_shape=GRID,
        target=target,
        balanced=False,
        generator=generator,
    )


def sorted_by_part(parts: GridParts, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows, cols = torch.nonzero(mask, as_tuple=True)
    order = torch.argsort(parts.part_of(rows, cols, GRID), stable=True)
    return rows[order], cols[order]


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_move_within_their_part_and_every_part_moves_its_share(axis):
    parts = GridParts(axis, 2)
    rows, cols = sorted_by_part(parts, torch.eye(4, dtype=torch.bool) | torch.eye(4, dtype=torch.bool).flip(0))
    move = plan_in_parts(POLICY, state_of(rows, cols, rows.numel()), 1, parts)
    assert isinstance(move, Move)
    assert move.taken is not None
    assert move.taken.all()
    before = parts.part_of(rows[move.slots], cols[move.slots], GRID)
    assert torch.equal(before, parts.part_of(move.new_rows, move.new_cols, GRID))
    assert torch.bincount(before).tolist() == [2, 2]


def test_one_part_is_the_whole_layer():
    rows, cols = torch.nonzero(torch.eye(4, dtype=torch.bool), as_tuple=True)
    ours = plan_in_parts(POLICY, state_of(rows, cols, 4), 1, GridParts(0, 1))
    theirs = plan(POLICY, state_of(rows, cols, 4), 1)
    assert isinstance(ours, Move)
    assert isinstance(theirs, Move)
    for name in ("slots", "new_rows", "new_cols"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name))


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_shrink_to_equal_numbers_of_blocks(axis):
    parts = GridParts(axis, 2)
    rows, cols = sorted_by_part(parts, torch.ones(GRID, dtype=torch.bool))
    policy = GradualPruning(total_steps=2, every=1, stop_at=1.0)
    shrink = plan_in_parts(policy, state_of(rows, cols, 6), 2, parts)
    assert isinstance(shrink, Shrink)
    kept = parts.part_of(rows[shrink.kept_slots], cols[shrink.kept_slots], GRID)
    assert kept.tolist() == [0, 0, 0, 1, 1, 1]
