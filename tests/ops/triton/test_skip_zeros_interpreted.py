"""The product that skips zero tiles of a dense operand."""

import pytest
import torch

from acf.errors import SparsityError
from acf.ops.triton import skip_zeros
from tests.ops.triton.interpreted import assert_close


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_skips_the_zero_tiles_of_a_dense_operand(dtype: torch.dtype) -> None:
    left, right = torch.randn(150, 100).to(dtype), torch.randn(140, 100).to(dtype)
    left[:64, 32:] = 0  # of the first row of tiles one tile is left, of the second none, of the third the last two
    left[64:128] = 0
    left[128:, :64] = 0
    listed = skip_zeros.list_nonzero_tiles(left)
    assert listed.counts.tolist() == [1, 0, 2]
    assert (listed.columns[0, 0], listed.columns[2, :2].tolist()) == (0, [2, 3])
    assert_close(skip_zeros.skip_zeros_product(left, right), left.double() @ right.double().T, dtype)
    right[:, 70] = torch.nan
    assert not skip_zeros.skip_zeros_product(left, right)[:128].isnan().any(), "a skipped tile was multiplied"


def test_operands_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SparsityError, match=r"left \(150, 100\) .* do not fit"):
        skip_zeros.skip_zeros_product(torch.zeros(150, 100), torch.zeros(140, 50))
