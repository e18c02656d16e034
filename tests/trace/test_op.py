"""Traced operations: what cannot have run is refused."""

import pytest

from acf.errors import TraceError
from acf.trace import TracedConv, TracedOp, VectorOp


def test_an_impossible_convolution_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        TracedConv((3, 3), (0, 1), input_size=(8, 8))


def test_a_batch_of_products_with_a_mask_of_kept_outputs_is_refused() -> None:
    with pytest.raises(TraceError, match="fc: a batch of products has neither a convolution nor a mask"):
        TracedOp("fc", "forward", "a", "b", batched=True, needed="kept")


@pytest.mark.parametrize(("elements", "after"), [(-1, 0), (1, -1)])
def test_vector_work_on_less_than_nothing_is_refused(elements: int, after: int) -> None:
    with pytest.raises(TraceError, match="must not be negative; the trace is damaged, capture it again"):
        VectorOp("relu", "relu", "forward", elements, after)
