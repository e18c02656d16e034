"""The transposable mask against every pattern of every tile."""

from itertools import product

import pytest
import torch

from acf.errors import SparsityError
from acf.sparse import transposable_mask


def all_patterns(n: int, m: int) -> torch.Tensor:
    """Every m x m matrix of zeros and ones whose rows and columns sum to n, float64 ``[patterns, m, m]``."""
    every = torch.tensor(list(product((0.0, 1.0), repeat=m * m)), dtype=torch.float64).view(-1, m, m)
    return every[(every.sum(1) == n).all(1) & (every.sum(2) == n).all(1)]


def tiles_of(matrix: torch.Tensor, m: int) -> torch.Tensor:
    return matrix.double().unflatten(1, (-1, m)).unflatten(0, (-1, m)).transpose(1, 2).reshape(-1, m, m)


@pytest.mark.parametrize(("n", "m", "patterns"), [(2, 4, 90), (1, 4, 24), (3, 4, 24), (1, 2, 2), (4, 4, 1)])
def test_every_tile_keeps_the_pattern_with_the_greatest_sum(n, m, patterns):
    weight = torch.randn(12 * m, 8 * m, generator=torch.Generator().manual_seed(0))
    mask = tiles_of(transposable_mask(weight, n, m), m)
    assert (mask.sum(1) == n).all()
    assert (mask.sum(2) == n).all()
    candidates, magnitudes = all_patterns(n, m), tiles_of(weight.abs(), m)
    assert len(candidates) == patterns
    best = torch.einsum("pij,tij->tp", candidates, magnitudes).max(1).values
    torch.testing.assert_close((mask * magnitudes).sum((1, 2)), best)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_equal_weights_get_the_first_pattern_and_the_mask_stays_in_form(dtype):
    mask = transposable_mask(torch.ones(8, 4, dtype=dtype), 2, 4)
    assert mask.int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]] * 2


def test_a_convolution_has_tiles_at_every_kernel_tap_and_the_mask_lies_in_memory_as_the_weight_does():
    weight = torch.randn(8, 4, 3, 2).to(memory_format=torch.channels_last)
    mask = transposable_mask(weight, 2, 4)
    assert mask.stride() == weight.stride()
    for row, col in product(range(3), range(2)):
        assert torch.equal(mask[:, :, row, col], transposable_mask(weight[:, :, row, col].contiguous(), 2, 4))


def test_a_weight_of_many_tiles_is_scored_in_chunks(monkeypatch):
    weight = torch.randn(16, 24)
    expected = transposable_mask(weight, 2, 4)
    monkeypatch.setattr("acf.sparse.transposable._CHUNK_TILES", 5)
    assert torch.equal(transposable_mask(weight, 2, 4), expected)


@pytest.mark.parametrize(("n", "m"), [(2, 8), (0, 4), (5, 4)])
def test_a_pattern_with_too_many_candidates_or_none_is_refused(n, m):
    with pytest.raises(SparsityError, match=rf"{n}:{m} has no transposable mask here.*use such as 2:4"):
        transposable_mask(torch.ones(8, 8), n, m)


@pytest.mark.parametrize("shape", [(8, 6), (6, 8)])
def test_both_dimensions_must_be_divided(shape):
    with pytest.raises(SparsityError, match=r"m 4 does not divide dimension \d of size 6, and a transposable mask"):
        transposable_mask(torch.ones(shape), 2, 4)


def test_a_weight_without_two_dimensions_is_refused() -> None:
    with pytest.raises(SparsityError, match=r"weight is of 1 dimensions, and a transposable mask has two"):
        transposable_mask(torch.ones(8), n=2, m=4)
