"""One matrix product over zero patterns."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from acf.lowering import Gemm


def test_a_product_counts_the_same_pairs_packed_and_plain() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((30, 77)) < 0.4, rng.random((77, 20)) < 0.7
    gemm = Gemm(a, b)
    assert (gemm.m, gemm.k, gemm.n) == (30, 77, 20)
    assert gemm.effectual_macs() == int((a.astype(int) @ b.astype(int)).sum())
    assert np.array_equal(gemm.a, a)
    assert np.array_equal(gemm.b, b)


def test_a_product_cannot_be_changed() -> None:
    gemm = Gemm(np.eye(4, dtype=bool), np.ones((4, 8), dtype=bool))
    with pytest.raises(FrozenInstanceError):
        gemm.phase = "weight_grad"  # type: ignore[misc]


def test_a_product_is_one_line_with_its_sizes_densities_and_effectual_macs() -> None:
    gemm = Gemm(np.eye(4, dtype=bool), np.ones((4, 8), dtype=bool))
    assert str(gemm) == "forward [4 x 4] @ [4 x 8], density 25.0% x 100.0%, 32 of 128 MACs effectual"
