"""Traced operations as matrix products: counted, built, and refused where they contradict themselves."""

import numpy as np
import pytest

from acf.lowering import matrix_products
from acf.trace import BitTensor, Trace, TracedConv, TracedOp


def test_products_are_counted_without_unpacking_an_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BitTensor, "to_bool", None)
    tensors = {"a": BitTensor.from_array(np.ones((5, 3, 4))), "b": BitTensor.from_array(np.ones((5, 4, 2)))}
    conv = TracedConv((3, 2), (2, 3), input_size=(8, 8), groups=4)
    trace = Trace([], tensors)
    assert len(matrix_products(trace, TracedOp("scores", "forward", "a", "b", batched=True))) == 5
    assert len(matrix_products(trace, TracedOp("fc", "forward", "a", "b"))) == 1
    assert len(matrix_products(trace, TracedOp("conv", "forward", "a", "b", conv=conv))) == 4
    assert len(matrix_products(trace, TracedOp("conv", "input_grad", "a", "b", conv=conv))) == 4 * 2 * 2


def test_effectual_macs_count_only_kept_outputs() -> None:
    rng = np.random.default_rng(0)
    a, b, needed = rng.random((12, 20)) < 0.4, rng.random((20, 16)) < 0.6, rng.random((12, 16)) < 0.3
    tensors = {name: BitTensor.from_array(value) for name, value in (("a", a), ("b", b), ("needed", needed))}
    (gemm,) = matrix_products(Trace([], tensors), TracedOp("fc", "weight_grad", "a", "b", needed="needed"))
    by_hand = sum(int(a[m, k] and b[k, n]) for m in range(12) for n in range(16) if needed[m, n] for k in range(20))
    assert gemm.effectual_macs() == by_hand
    (whole,) = matrix_products(Trace([], tensors), TracedOp("fc", "weight_grad", "a", "b"))
    assert whole.effectual_macs() == int((a.astype(int) @ b.astype(int)).sum())
