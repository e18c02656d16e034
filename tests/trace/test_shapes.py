"""A trace whose shapes contradict each other is refused where it is made or read."""

import numpy as np
import pytest

from acf.errors import TraceError
from acf.trace import Trace, TracedConv, TracedOp
from acf.trace.bits import BitTensor

CONV = TracedConv((3, 3), input_size=(8, 8))


def trace_of(op: TracedOp, *shapes: tuple[int, ...]) -> Trace:
    tensors = {name: BitTensor.from_array(np.ones(shape)) for name, shape in zip("abc", shapes, strict=False)}
    return Trace([op], tensors)


@pytest.mark.parametrize(
    ("phase", "a_shape", "b_shape"),
    [
        ("forward", (1, 2, 7, 8), (4, 18)),
        ("forward", (1, 3, 8, 8), (4, 18)),
        ("forward", (8, 8), (4, 18)),
        ("input_grad", (1, 5, 6, 6), (4, 18)),
        ("input_grad", (1, 4, 6, 6), (4, 19)),
        ("weight_grad", (1, 4, 6, 6), (1, 2, 6, 6)),
        ("weight_grad", (2, 4, 6, 6), (1, 2, 8, 8)),
    ],
)
def test_operands_that_do_not_fit_the_geometry_are_refused(
    phase: str, a_shape: tuple[int, ...], b_shape: tuple[int, ...]
) -> None:
    with pytest.raises(TraceError, match=f"conv {phase}: .* do not fit TracedConv"):
        trace_of(TracedOp("conv", phase, "a", "b", conv=CONV), a_shape, b_shape)


@pytest.mark.parametrize(
    "conv",
    [
        TracedConv((3, 3), padding=(1_000_000, 1), input_size=(8, 8)),
        TracedConv((65, 65), padding=(60, 60), input_size=(8, 8)),
        TracedConv((9, 9), input_size=(8, 8)),
    ],
)
def test_a_convolution_that_is_all_padding_or_has_no_output_is_refused(conv: TracedConv) -> None:
    with pytest.raises(TraceError, match="has no output, or more than 4096 taps, or is nearly all padding"):
        trace_of(TracedOp("conv", "forward", "a", "b", conv=conv), (1, 2, 8, 8), (4, 2 * conv.taps))


def test_groups_that_do_not_divide_the_channels_are_refused() -> None:
    conv = TracedConv((1, 1), input_size=(8, 8), groups=3)
    with pytest.raises(TraceError, match="do not fit"):
        trace_of(TracedOp("conv", "weight_grad", "a", "b", conv=conv), (1, 4, 8, 8), (1, 4, 8, 8))


def test_batches_of_different_length_are_refused() -> None:
    with pytest.raises(TraceError, match="are no batches of as many matrices"):
        trace_of(TracedOp("scores", "forward", "a", "b", batched=True), (2, 4, 4), (3, 4, 4))


def test_matrices_that_do_not_multiply_are_refused_as_they_are_transposed() -> None:
    trace_of(TracedOp("fc", "forward", "a", "b", transpose_b=True), (2, 4), (3, 4))
    with pytest.raises(TraceError, match=r"fc: a \[2, 4\] and b \[3, 4\] do not multiply"):
        trace_of(TracedOp("fc", "forward", "a", "b"), (2, 4), (3, 4))


def test_a_mask_that_is_no_shape_of_the_output_is_refused() -> None:
    with pytest.raises(TraceError, match=r"the mask of kept outputs is \[2, 2\], the output \[2, 3\]"):
        trace_of(TracedOp("fc", "weight_grad", "a", "b", needed="c"), (2, 4), (4, 3), (2, 2))
    op = TracedOp("conv", "weight_grad", "a", "b", conv=CONV, needed="c")
    with pytest.raises(TraceError, match="which is no shape of the weight gradient"):
        trace_of(op, (1, 4, 6, 6), (1, 2, 8, 8), (4, 17))


def test_a_huge_stride_is_lowered_at_once() -> None:
    from acf.lowering.products import matrix_products

    conv = TracedConv((1, 1), stride=(10**9, 10**9), input_size=(8, 8))
    op = TracedOp("conv", "input_grad", "a", "b", conv=conv)
    assert len(list(matrix_products(trace_of(op, (1, 4, 1, 1), (4, 2)), op))) == 1


def test_bits_behind_the_last_element_are_refused() -> None:
    with pytest.raises(TraceError, match="bits set behind its last element"):
        BitTensor((3,), np.array([0xFF], dtype=np.uint8))
