"""Which blocks stay, go and come, anywhere or in equal numbers per block row."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from acf.masks import first_true, top_blocks
from acf.masks.selection import first_in_row_turns, first_in_turns, highest, keep_strongest

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


def test_pruning_keeps_the_strong_and_the_pruned_ones_of_greatest_growth_score():
    magnitude = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])
    gradient = torch.tensor([9.0, 0.0, 1.0, 0.0, 2.0])
    assert keep_strongest(magnitude, gradient, kept=3, regrown=1, groups=None).tolist() == [0, 1, 4]
    assert keep_strongest(magnitude, gradient, kept=3, regrown=0, groups=None).tolist() == [0, 1, 2]


@given(grid=grids, data=st.data())
def test_a_balanced_pruning_ends_with_every_row_at_the_same_number_within_one(grid, data):
    size = grid[0] * grid[1]
    rows = torch.arange(size) // grid[1]
    kept = data.draw(st.integers(0, size))
    regrown = data.draw(st.integers(0, kept))
    slots = keep_strongest(scores_of(data, size), scores_of(data, size), kept, regrown, rows)
    per_row = torch.bincount(rows[slots], minlength=grid[0])
    assert slots.unique().numel() == kept
    assert per_row.max() - per_row.min() <= 1


@given(data=st.data())
def test_the_highest_come_in_descending_order_ties_to_the_lower_index(data):
    values = data.draw(st.lists(few_scores, max_size=12))
    count = data.draw(st.integers(0, 14))
    expected = sorted(range(len(values)), key=lambda index: (-values[index], index))[:count]
    assert highest(torch.tensor(values), count).tolist() == expected


def test_scores_that_are_sorted_in_several_chunks_are_ranked_as_one():
    values = torch.randint(0, 500, (40_000,), generator=torch.Generator().manual_seed(0)).float()
    expected = values.sort(descending=True, stable=True).indices
    for count in (1, 5_000, 20_000, 40_000):
        assert torch.equal(highest(values, count), expected[:count])


def test_the_first_true_ones_are_listed_and_what_is_missing_is_not_valid():
    mask = torch.tensor([False, True, False, True])
    indices, valid = first_true(mask, 3)
    assert indices[valid].tolist() == [1, 3]
    assert valid.tolist() == [True, True, False]


@given(grid=grids, data=st.data())
def test_turns_of_rows_in_a_grid_are_the_turns_of_groups(grid, data):
    scores = scores_of(data, grid[0] * grid[1])
    absent = torch.tensor(data.draw(st.lists(st.booleans(), min_size=scores.numel(), max_size=scores.numel())))
    quota = torch.tensor(data.draw(st.lists(st.integers(0, 6), min_size=grid[0], max_size=grid[0])))
    count = data.draw(st.integers(1, scores.numel()))
    in_grid = first_in_row_turns(scores.masked_fill(absent, -torch.inf).reshape(grid), quota, count)
    present = torch.nonzero(~absent).flatten()
    in_list = first_in_turns(scores[present], present // grid[1], quota, count)
    assert in_grid.indices[in_grid.valid].tolist() == present[in_list.indices[in_list.valid]].tolist()
    assert in_list.indices.unique().numel() == in_list.indices.numel()
