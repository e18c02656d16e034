"""Start topologies: exact numbers of blocks in the structure that each one promises."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acf.errors import SparsityError
from acf.masks import TOPOLOGIES, StartTopology

sides = st.integers(1, 13)
grids = st.tuples(sides, st.sampled_from([1, 2, 9]), sides)


def random_scores(rows: int, cols: int) -> torch.Tensor:
    return torch.rand(rows, cols, generator=torch.Generator().manual_seed(rows * 31 + cols))


@pytest.mark.parametrize("name", TOPOLOGIES)
@given(grid=grids, density=st.floats(0.0, 1.0), matrices=st.integers(1, 3))
def test_every_topology_holds_exactly_the_blocks_asked_for(name, grid, density, matrices):
    rows, taps, channels = grid
    scores = random_scores(matrices * rows, taps * channels)
    count = round(density * scores.numel())
    mask = StartTopology(name, matrices, taps).mask(scores, count)
    assert mask.shape == scores.shape
    assert int(mask.sum()) == count


@given(grid=grids, density=st.floats(0.0, 1.0))
def test_spread_gives_every_row_and_every_column_the_same_number_within_one(grid, density):
    rows, taps, channels = grid
    scores = random_scores(rows, taps * channels)
    mask = StartTopology("spread", taps=taps).mask(scores, round(density * scores.numel()), balanced=True)
    for dim in (0, 1):
        filled = mask.sum(dim)
        assert filled.max() - filled.min() <= 1


def test_spread_takes_the_highest_scores_where_rows_and_columns_allow_it():
    scores = torch.eye(6)[torch.tensor([3, 1, 5, 0, 2, 4])]
    assert torch.equal(StartTopology("spread").mask(scores, 6), scores.bool())


def test_butterfly_is_the_block_diagonal_and_every_power_of_two_away_from_it():
    scores = random_scores(8, 8)
    mask = StartTopology("butterfly").mask(scores, 8 * 4)
    expected = [[(row ^ col) in (0, 1, 2, 4) for col in range(8)] for row in range(8)]
    assert mask.tolist() == expected


def test_butterfly_is_the_same_at_every_tap_of_a_convolution():
    mask = StartTopology("butterfly", taps=9).mask(random_scores(4, 9 * 4), 9 * 4)
    assert torch.equal(mask.reshape(4, 9, 4), torch.eye(4, dtype=torch.bool)[:, None, :].expand(4, 9, 4))


@given(rows=sides, cols=sides)
def test_a_stretched_butterfly_reaches_every_row_and_column_of_any_grid(rows, cols):
    side = 1 << (min(rows, cols).bit_length() - 1)
    diagonal = sum(row * side // rows == col * side // cols for row in range(rows) for col in range(cols))
    mask = StartTopology("butterfly").mask(random_scores(rows, cols), diagonal)
    assert mask.any(0).all()
    assert mask.any(1).all()


def test_a_part_of_the_butterfly_mixes_all_strides():
    mask = StartTopology("butterfly").mask(random_scores(32, 32), 32 + 32)
    rows, cols = torch.nonzero(mask).T
    assert {0, 1, 2, 4, 8, 16} == set((rows ^ cols).tolist())
    assert mask.sum(1).tolist() == [2] * 32  # and gives every row as many


def test_diagonal_takes_the_wrapped_diagonals_of_greatest_sum_and_a_part_of_the_next():
    scores = torch.full((4, 4), 0.1)
    for weight, offset in ((3.0, 1), (2.0, 3), (1.0, 0)):
        scores[torch.arange(4), (torch.arange(4) + offset) % 4] = weight
    mask = StartTopology("diagonal").mask(scores, 10)
    rows, cols = torch.nonzero(mask).T
    offsets = torch.bincount((cols - rows) % 4, minlength=4)
    assert offsets.tolist() == [2, 4, 0, 4]


def test_diagonals_of_a_wide_grid_meet_every_row_and_column():
    mask = StartTopology("diagonal").mask(random_scores(3, 8), 8)
    assert mask.sum(0).tolist() == [1] * 8
    assert sorted(mask.sum(1).tolist()) == [2, 3, 3]


def test_experts_share_the_blocks_equally():
    mask = StartTopology("spread", matrices=3).mask(random_scores(3 * 4, 5), 20)
    assert mask.reshape(3, -1).sum(1).tolist() == [7, 7, 6]


def test_an_unknown_topology_is_refused_by_name():
    with pytest.raises(SparsityError, match="topology 'ring' is not one of norm, spread, butterfly, diagonal"):
        StartTopology("ring").mask(torch.ones(2, 2), 1)


def test_a_topology_without_equal_rows_is_refused_where_rows_must_be_balanced():
    with pytest.raises(SparsityError, match="use topology norm or spread, or another distribution"):
        StartTopology("butterfly").mask(torch.ones(2, 2), 1, balanced=True)
