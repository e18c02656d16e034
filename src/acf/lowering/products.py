"""From a traced operation to plain matrix products over zero patterns.

Convolutions become products over windows with channels innermost. The input gradient of a strided convolution is
split by output residue, so that the zeros a stride would insert are never counted as work, for any machine.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from acf.errors import TraceError
from acf.lowering.gemm import Gemm
from acf.lowering.im2col import gathered_rows, pixel_columns, window_columns, window_rows
from acf.trace import Trace, TracedConv, TracedOp
from acf.trace.bits import BitTensor, BoolArray


def dense_macs(trace: Trace) -> int:
    """Multiply-accumulates of the step if nothing were skipped."""
    return sum(gemm.dense_macs for op in trace.ops for gemm in matrix_products(trace, op))


def effectual_macs(trace: Trace) -> int:
    """Multiply-accumulates of kept outputs with both operands non-zero."""
    return sum(gemm.effectual_macs() for op in trace.ops for gemm in matrix_products(trace, op))


def matrix_products(trace: Trace, op: TracedOp) -> Iterator[Gemm]:
    """The matrix products of ``op``, one at a time so that only one im2col matrix is in memory."""
    tensors = trace.tensors
    a, b = tensors[op.a].to_bool(), tensors[op.b].to_bool()
    needed = tensors[op.needed].to_bool() if op.needed else None
    if op.batched:
        _check_batch(op, a, b)
        yield from (_lower_matrices(op, a_matrix, b_matrix, None) for a_matrix, b_matrix in zip(a, b, strict=True))
        return
    if op.conv is None:
        yield _lower_matrices(op, a, b, needed)
        return
    conv = op.conv
    _check_conv(op, conv, a, b)
    for group in range(conv.groups):
        parts = [_group_part(array, group, conv.groups, axis) for array, axis in _group_axes(op, a, b)]
        part_needed = None if needed is None else _group_part(needed, group, conv.groups, 0)
        yield from _lower_conv(op.phase, conv, parts[0], parts[1], part_needed)


def _check_batch(op: TracedOp, a: BoolArray, b: BoolArray) -> None:
    """Refuse operands that are no batches of equal length."""
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0]:
        raise TraceError(
            f"{op.name} {op.phase}: operands {list(a.shape)} and {list(b.shape)} are no batches of as many matrices; "
            "the trace is damaged, capture the step again"
        )


def gemm_count(op: TracedOp, tensors: Mapping[str, BitTensor]) -> int:
    """How many matrix products `lower` makes of ``op``."""
    if op.batched:
        return max(1, tensors[op.a].shape[0])
    if op.conv is None:
        return 1
    if op.phase != "input_grad":
        return op.conv.groups
    residues = [
        sum(bool(_taps_of_residue(op.conv, axis, residue)) for residue in range(op.conv.stride[axis]))
        for axis in (0, 1)
    ]
    return op.conv.groups * residues[0] * residues[1]


def _lower_matrices(op: TracedOp, a: BoolArray, b: BoolArray, needed: BoolArray | None) -> Gemm:
    a, b = a.T if op.transpose_a else a, b.T if op.transpose_b else b
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise TraceError(
            f"{op.name}: a {list(a.shape)} and b {list(b.shape)} do not multiply; pass a as [m, k] and b as [k, n]"
        )
    if needed is not None and needed.shape != (a.shape[0], b.shape[1]):
        raise TraceError(
            f"{op.name}: the mask of kept outputs is {list(needed.shape)}, the output [{a.shape[0]}, {b.shape[1]}]; "
            "the trace is damaged, capture the step again"
        )
    return Gemm(a, b, needed, op.phase, transposed=(op.transpose_a, not op.transpose_b), weighted=op.weighted)


def _check_conv(op: TracedOp, conv: TracedConv, a: BoolArray, b: BoolArray) -> None:
    """Refuse operands that are not what the geometry says; only a damaged or foreign file has such."""
    taps = conv.taps
    if op.phase == "weight_grad":
        fits = a.ndim == b.ndim == 4 and a.shape[2:] == conv.output_map and b.shape[2:] == conv.input_size
    elif a.ndim == 4 and b.ndim == 2:
        maps = conv.input_size if op.phase == "forward" else conv.output_map
        channels = b.shape[1] // taps * conv.groups if op.phase == "forward" else b.shape[0]
        fits = a.shape[2:] == maps and a.shape[1] == channels and b.shape[1] % taps == 0
    else:
        fits = False
    if not fits:
        raise TraceError(
            f"{op.name} {op.phase}: operands {list(a.shape)} and {list(b.shape)} do not fit {conv}; "
            "the trace is damaged, capture the step again"
        )


def _group_axes(op: TracedOp, a: BoolArray, b: BoolArray) -> list[tuple[BoolArray, int]]:
    """The axis along which groups split: channels of feature maps, output channels of weights."""
    return [(a, 1), (b, 1 if op.phase == "weight_grad" else 0)]


def _group_part(array: BoolArray, group: int, groups: int, axis: int) -> BoolArray:
    return np.split(array, groups, axis=axis)[group] if groups > 1 else array


def _lower_conv(phase: str, conv: TracedConv, a: BoolArray, b: BoolArray, needed: BoolArray | None) -> Iterator[Gemm]:
    taps = conv.taps
    if phase == "forward":
        yield Gemm(window_rows(a, conv), b.T, phase=phase, taps=taps)
    elif phase == "weight_grad":
        yield Gemm(pixel_columns(a), window_columns(b, conv), needed, phase, taps, transposed=(True, True))
    else:
        yield from _input_gradient(conv, a, b)


def _input_gradient(conv: TracedConv, gradient: BoolArray, weight: BoolArray) -> Iterator[Gemm]:
    """One product per residue of the padded input pixel modulo the stride: only taps that can reach it."""
    out_channels, (kernel_height, kernel_width) = weight.shape[0], conv.kernel_size
    by_tap = weight.reshape(out_channels, kernel_height, kernel_width, -1)
    for row_residue in range(conv.stride[0]):
        row_taps = _taps_of_residue(conv, 0, row_residue)
        for col_residue in range(conv.stride[1]):
            col_taps = _taps_of_residue(conv, 1, col_residue)
            if not row_taps or not col_taps:
                continue  # no tap reaches these pixels: their gradient is zero without work
            rows = _output_positions(conv, 0, row_residue, row_taps, gradient.shape[2])
            cols = _output_positions(conv, 1, col_residue, col_taps, gradient.shape[3])
            filters = [by_tap[:, row, col] for row in row_taps for col in col_taps]
            gathered = gathered_rows(gradient, rows, cols)
            matrix = np.concatenate(filters, axis=0)
            yield Gemm(gathered, matrix, phase="input_grad", taps=len(filters), transposed=(False, True))


def _taps_of_residue(conv: TracedConv, axis: int, residue: int) -> list[int]:
    stride, dilation = conv.stride[axis], conv.dilation[axis]
    return [tap for tap in range(conv.kernel_size[axis]) if (tap * dilation) % stride == residue]


def _output_positions(
    conv: TracedConv, axis: int, residue: int, taps: list[int], outputs: int
) -> list[NDArray[np.int64]]:
    """For each tap, the output index that each real input pixel of the residue meets, -1 where there is none.

    The padded input pixel ``residue + stride * q`` meets output ``q - (tap * dilation - residue) / stride``.
    """
    stride, dilation, padding = conv.stride[axis], conv.dilation[axis], conv.padding[axis]
    padded_pixels = np.arange(residue, padding + conv.input_size[axis], stride)
    real = padded_pixels[padded_pixels >= padding]
    positions = []
    for tap in taps:
        index = (real - tap * dilation) // stride
        positions.append(np.where((index >= 0) & (index < outputs), index, -1))
    return positions
