"""Whether the shapes of a traced operation agree, so that a damaged or foreign trace is refused before it is played."""

from collections.abc import Callable, Mapping
from math import prod

from acf.errors import TraceError
from acf.trace.bits import BitTensor
from acf.trace.op import TracedConv, TracedOp

Shape = tuple[int, ...]

MOST_TAPS = 4096
"""Positions of the largest kernel that is taken: 64 x 64."""

MOST_PADDED = 16
"""A padded feature map has at most this many times the pixels of the map, or of one of 16 x 16 if that is larger."""


def check_shapes(op: TracedOp, tensors: Mapping[str, BitTensor]) -> None:
    """Refuse ``op`` where its operands contradict each other or its geometry."""
    a, b = (tensors[key].shape for key in op.operands)
    needed = tensors[op.needed].shape if op.needed is not None else None
    if op.conv is not None:
        _check_conv(op, op.conv, a, b, needed)
    elif op.batched:
        if len(a) != 3 or len(b) != 3 or a[0] != b[0]:
            raise _refused(op, f"operands {list(a)} and {list(b)} are no batches of as many matrices")
        _check_product(op, a[1:], b[1:], None)
    else:
        _check_product(op, a, b, needed)


def _check_product(op: TracedOp, a: Shape, b: Shape, needed: Shape | None) -> None:
    a, b = a[::-1] if op.transpose_a else a, b[::-1] if op.transpose_b else b
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise TraceError(f"{op.name}: a {list(a)} and b {list(b)} do not multiply; pass a as [m, k] and b as [k, n]")
    if needed is not None and needed != (a[0], b[1]):
        raise _refused(op, f"the mask of kept outputs is {list(needed)}, the output [{a[0]}, {b[1]}]")


def _check_conv(op: TracedOp, conv: TracedConv, a: Shape, b: Shape, needed: Shape | None) -> None:
    pixels = prod(conv.input_size)
    padded = prod(size + 2 * padding for size, padding in zip(conv.input_size, conv.padding, strict=True))
    if conv.taps > MOST_TAPS or padded > MOST_PADDED * max(pixels, 256) or min(conv.output_map) < 1:
        raise _refused(op, f"{conv} has no output, or more than {MOST_TAPS} taps, or is nearly all padding")
    if not CONV_FITS[op.phase](conv, a, b):
        raise _refused(op, f"operands {list(a)} and {list(b)} do not fit {conv}")
    if needed is not None and (op.phase != "weight_grad" or needed != (a[1], conv.taps * b[1] // conv.groups)):
        raise _refused(op, f"the mask of kept outputs is {list(needed)}, which is no shape of the weight gradient")


def _forward_fits(conv: TracedConv, x: Shape, weight: Shape) -> bool:
    return (
        (len(x), len(weight)) == (4, 2)
        and x[2:] == conv.input_size
        and weight[1] * conv.groups == x[1] * conv.taps
        and weight[0] % conv.groups == x[1] % conv.groups == 0
    )


def _input_grad_fits(conv: TracedConv, gradient: Shape, weight: Shape) -> bool:
    return (
        (len(gradient), len(weight)) == (4, 2)
        and gradient[2:] == conv.output_map
        and gradient[1] == weight[0]
        and weight[0] % conv.groups == weight[1] % conv.taps == 0
    )


def _weight_grad_fits(conv: TracedConv, gradient: Shape, x: Shape) -> bool:
    return (
        len(gradient) == len(x) == 4
        and gradient[0] == x[0]
        and gradient[2:] == conv.output_map
        and x[2:] == conv.input_size
        and gradient[1] % conv.groups == x[1] % conv.groups == 0
    )


CONV_FITS: dict[str, Callable[[TracedConv, Shape, Shape], bool]] = {
    "forward": _forward_fits,
    "input_grad": _input_grad_fits,
    "weight_grad": _weight_grad_fits,
}
"""Whether the operands of a convolution fit its geometry, by phase."""


def _refused(op: TracedOp, why: str) -> TraceError:
    return TraceError(f"{op.name} {op.phase}: {why}; the trace is damaged, capture the step again")
