"""Which blocks stay, go and come, anywhere or in equal numbers per block row."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from acf.masks import plan_move, plan_pruning, top_blocks

grids = st.tuples(st.integers(1, 6), st.integers(1, 6))
few_scores = st.integers(0, 3).map(float)  # few values, so that ties are common


def scores_of(data: st.DataObject, size: int) -> torch.Tensor:
    return torch.tensor(data.draw(st.lists(few_scores, min_size=size, max_size=size)))


@given(grid=grids, data=st.data())
def test_a_balanced_choice_gives_every_row_the_same_number_within_one(grid, data):
    scores = scores_of(data, grid[0] * grid[1]).reshape(grid)
    count = data.draw(st.integers(0, scores.numel()))
    per_row = top_blocks(scores, count, balanced=True).sum(dim=1)
    assert per_row.sum() == count
    assert per_row.max() - per_row.min() <= 1


@given(grid=grids, data=st.data())
def test_a_balanced_choice_takes_the_highest_scores_of_each_row(grid, data):
    scores = scores_of(data, grid[0] * grid[1]).reshape(grid)
    mask = top_blocks(scores, data.draw(st.integers(0, scores.numel())), balanced=True)
    for row, taken in zip(scores, mask, strict=True):
        expected = torch.zeros_like(taken)
        expected[torch.sort(row, descending=True, stable=True).indices[: int(taken.sum())]] = True
        assert torch.equal(taken, expected)


def test_the_odd_block_of_a_balanced_choice_goes_to_the_row_where_it_scores_highest():
    scores = torch.tensor([[5.0, 1.0], [4.0, 3.0]])
    assert top_blocks(scores, 3, balanced=True).tolist() == [[True, False], [True, True]]


@given(grid=grids, data=st.data())
def test_a_free_choice_takes_the_highest_scores_ties_to_the_lower_index(grid, data):
    scores = scores_of(data, grid[0] * grid[1])
    count = data.draw(st.integers(0, scores.numel()))
    expected = sorted(sorted(range(scores.numel()), key=lambda index: (-scores[index], index))[:count])
    chosen = torch.nonzero(top_blocks(scores.reshape(grid), count).flatten()).flatten()
    assert chosen.tolist() == expected


@given(grid=grids, data=st.data())
def test_a_balanced_move_leaves_the_number_of_blocks_of_every_row_as_it_was(grid, data):
    mask = top_blocks(scores_of(data, grid[0] * grid[1]).reshape(grid), data.draw(st.integers(0, 36)), balanced=True)
    rows, cols = torch.nonzero(mask, as_tuple=True)
    absent_rows, absent_cols = torch.nonzero(~mask, as_tuple=True)
    present, absent = scores_of(data, rows.numel()), scores_of(data, absent_rows.numel())
    count = data.draw(st.integers(0, 36))
    move = plan_move(present, absent, absent_rows.int(), absent_cols.int(), count, present_rows=rows.int())
    moved = mask.clone()
    moved[rows[move.slots], cols[move.slots]] = False
    moved[move.new_rows, move.new_cols] = True
    assert torch.equal(moved.sum(dim=1), mask.sum(dim=1))
    swappable = torch.minimum(mask.sum(dim=1), (~mask).sum(dim=1)).sum()
    assert move.slots.numel() == move.new_rows.numel() == min(count, int(swappable))


def test_a_balanced_move_swaps_the_lowest_of_a_row_for_the_highest_absent_of_that_row():
    present_rows, present = torch.tensor([0, 0, 1, 1]), torch.tensor([1.0, 9.0, 8.0, 7.0])
    absent_rows, absent_cols = torch.tensor([0, 0, 1, 1]), torch.tensor([2, 3, 2, 3])
    absent = torch.tensor([0.1, 0.2, 0.9, 0.8])
    move = plan_move(present, absent, absent_rows, absent_cols, 1, present_rows)
    assert (move.slots.tolist(), move.new_rows.tolist(), move.new_cols.tolist()) == ([3], [1], [2])
    both = plan_move(present, absent, absent_rows, absent_cols, 2, present_rows)
    assert sorted(both.slots.tolist()) == [0, 3]
    assert sorted(zip(both.new_rows.tolist(), both.new_cols.tolist(), strict=True)) == [(0, 3), (1, 2)]


def test_pruning_keeps_the_strong_and_the_pruned_ones_of_greatest_growth_score():
    magnitude = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])
    gradient = torch.tensor([9.0, 0.0, 1.0, 0.0, 2.0])
    assert plan_pruning(magnitude, gradient, kept=3, regrown=1).tolist() == [0, 1, 4]
    assert plan_pruning(magnitude, gradient, kept=3, regrown=0).tolist() == [0, 1, 2]


@given(grid=grids, data=st.data())
def test_a_balanced_pruning_ends_with_every_row_at_the_same_number_within_one(grid, data):
    size = grid[0] * grid[1]
    rows = torch.arange(size) // grid[1]
    kept = data.draw(st.integers(0, size))
    regrown = data.draw(st.integers(0, kept))
    slots = plan_pruning(scores_of(data, size), scores_of(data, size), kept, regrown, rows)
    per_row = torch.bincount(rows[slots], minlength=grid[0])
    assert slots.unique().numel() == kept
    assert per_row.max() - per_row.min() <= 1
