"""Gradient norms of lists of candidate blocks."""

import pytest
import torch

from acf.ops import reference
from acf.ops.cpu import kernels
from tests.ops.cpu.layers import layer, needs_compiler

pytestmark = [needs_compiler, pytest.mark.usefixtures("native_at_any_density")]


def test_norms_name_a_block_twice_if_asked_and_keep_the_order_of_the_candidates() -> None:
    x, output_grad, _, _ = layer()
    rows, cols = torch.tensor([3, 0, 3, 5], dtype=torch.int32), torch.tensor([1, 2, 1, 0], dtype=torch.int32)
    expected = reference.gradient_norms(output_grad, x, rows, cols, (16, 16))
    torch.testing.assert_close(kernels.block_gradient_norms(output_grad, x, rows, cols, [16, 16]), expected)


def test_norms_of_more_blocks_than_fit_at_once_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "NORM_CHUNK_ELEMENTS", 5 * 16 * 16)
    x, output_grad, _, _ = layer()
    rows, cols = torch.nonzero(torch.ones(6, 4), as_tuple=True)
    expected = reference.gradient_norms(output_grad, x, rows, cols, (16, 16))
    torch.testing.assert_close(kernels.block_gradient_norms(output_grad, x, rows, cols, [16, 16]), expected)
