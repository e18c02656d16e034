"""Gradient norms of candidate blocks, by tiles, by groups and by list."""

import pytest
import torch

from acf.ops import reference
from acf.ops.triton import norms
from tests.ops.triton.interpreted import BLOCK_SIZES, assert_close


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("block", BLOCK_SIZES)
def test_norms_agree_with_the_reference_by_tiles_groups_and_list(block: int, dtype: torch.dtype) -> None:
    x, output_grad = torch.randn(37, 3 * block).to(dtype), torch.randn(37, 5 * block).to(dtype)
    rows, cols = torch.nonzero(torch.rand(5, 3) < 0.6, as_tuple=True)
    shuffled = torch.randperm(len(rows))
    rows, cols = rows[shuffled].int(), cols[shuffled].int()
    expected = reference.gradient_norms(output_grad.double(), x.double(), rows, cols, (block, block))
    for result in (
        norms.norms_of_list(output_grad, x, rows, cols, block, None),
        norms.norms_of_groups(output_grad, x, rows, cols, block, None),
        norms.norms_of_groups(x, output_grad, cols, rows, block, None),
        norms.norms_by_tiles(output_grad, x, rows, cols, block),
    ):
        assert_close(result, expected, dtype)


def test_a_candidate_list_is_computed_in_the_way_that_its_length_makes_cheapest() -> None:
    for block, lengths in ((16, (40, 9000, 600_000)), (64, (40, 3000, 15000))):
        ways = [norms.cheapest_way(length, block, 8192, (16384, 4096), 2) for length in lengths]
        assert ways == ["list", "groups", "tiles"]
