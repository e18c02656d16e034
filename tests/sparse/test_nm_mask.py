"""The N:M mask against a sort of every group."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acf.errors import SparsityError
from acf.sparse import nm_mask


def kept_by_sorting(group: list[float], n: int) -> set[int]:
    """The n greatest magnitudes of one group; Python's sort is stable, so ties fall to the lower index."""
    return set(sorted(range(len(group)), key=lambda index: -abs(group[index]))[:n])


@st.composite
def grouped_weights(draw: st.DrawFn) -> tuple[torch.Tensor, int, int, int]:
    m = draw(st.integers(1, 16))
    n = draw(st.integers(1, m))
    dim = draw(st.integers(0, 3))
    shape = [draw(st.integers(1, 3)) for _ in range(4)]
    shape[dim] *= m
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    few_values = torch.randint(-3, 4, shape, generator=generator).double()  # many ties
    return (few_values if draw(st.booleans()) else torch.randn(shape, generator=generator)), n, m, dim


@given(grouped_weights())
def test_every_group_keeps_what_a_stable_sort_by_magnitude_puts_first(case):
    weight, n, m, dim = case
    mask = nm_mask(weight, n, m, dim)
    assert mask.shape == weight.shape
    values, kept = (tensor.movedim(dim, -1).reshape(-1, m).tolist() for tensor in (weight, mask))
    for group, flags in zip(values, kept, strict=True):
        assert {index for index, flag in enumerate(flags) if flag} == kept_by_sorting(group, n)


@given(grouped_weights())
def test_a_negative_dimension_counts_from_the_end(case):
    weight, n, m, dim = case
    assert torch.equal(nm_mask(weight, n, m, dim - 4), nm_mask(weight, n, m, dim))


def test_a_group_of_more_than_256_still_counts_right():
    weight = torch.arange(1.0, 601.0)
    assert nm_mask(weight, 10, 300, dim=0).nonzero().flatten().tolist() == [*range(290, 300), *range(590, 600)]


@pytest.mark.parametrize(("n", "m"), [(0, 4), (5, 4), (-1, 4)])
def test_a_pattern_that_keeps_none_or_more_than_all_is_refused(n, m):
    with pytest.raises(SparsityError, match=rf"{n}:{m} is no group pattern: n must lie in 1 to m; pass such as"):
        nm_mask(torch.ones(8), n, m, dim=0)


def test_a_dimension_that_m_does_not_divide_is_refused():
    with pytest.raises(SparsityError, match="m 4 does not divide dimension 1 of size 6; use an m that does"):
        nm_mask(torch.ones(4, 6), 2, 4, dim=1)


def test_the_mask_lies_in_memory_as_the_weight_does():
    weight = torch.randn(8, 8, 3, 3).to(memory_format=torch.channels_last)
    mask = nm_mask(weight, 2, 4, dim=1)
    assert mask.stride() == weight.stride()
    assert torch.equal(mask, nm_mask(weight.contiguous(), 2, 4, dim=1))
