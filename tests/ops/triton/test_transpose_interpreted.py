"""Transposed operands."""

import pytest
import torch

from acf.ops.triton.transpose import transposed


@pytest.mark.parametrize("shape", [(1, 16), (128, 64), (130, 80)], ids=str)
def test_a_transpose_is_padded_with_zeros(shape: tuple[int, int]) -> None:
    x = torch.randn(shape).bfloat16()
    result = transposed(x)
    assert result.shape[1] % 128 == 0
    assert torch.equal(result[:, : shape[0]], x.T)
    assert not result[:, shape[0] :].any()
