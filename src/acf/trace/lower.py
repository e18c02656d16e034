"""From a traced operation to plain matrix products over zero patterns.

Convolutions become products over windows with channels innermost. The input gradient of a strided convolution is
split by output residue, so that the zeros a stride would insert are never counted as work, for any machine.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.errors import TraceError
from acf.trace.bits import BitTensor, BoolArray
from acf.trace.op import ConvShape, TracedOp


@dataclass(frozen=True, eq=False)
class Gemm:
    """``a [m, k] @ b [k, n]`` as bool patterns; ``needed [m, n]`` marks the outputs that are kept, None: all.

    ``phase`` says what the operands are: ``a`` activations (forward) or gradients (the others), ``b`` weights, or
    activations in a weight gradient. ``taps`` is how often the channels of a convolution repeat, channels innermost:
    along ``k``, and along ``n`` in a weight gradient.
    """

    a: BoolArray
    b: BoolArray
    needed: BoolArray | None = None
    phase: str = "forward"
    taps: int = 1

    @property
    def m(self) -> int:
        """Rows of the output."""
        return int(self.a.shape[0])

    @property
    def k(self) -> int:
        """Length of the reduction."""
        return int(self.a.shape[1])

    @property
    def n(self) -> int:
        """Columns of the output."""
        return int(self.b.shape[1])

    @property
    def dense_macs(self) -> int:
        """Multiply-accumulates of the dense product."""
        return self.m * self.k * self.n

    def effectual_macs(self) -> int:
        """Multiply-accumulates of kept outputs whose operands are both non-zero, counted exactly."""
        if self.needed is None:
            pairs = self.a.sum(axis=0, dtype=np.int64) * self.b.sum(axis=1, dtype=np.int64)
            return int(pairs.sum())
        counts = self.a.astype(np.float32) @ self.b.astype(np.float32)  # exact: k < 2**24
        return int(counts[self.needed].sum(dtype=np.float64))


def lower(op: TracedOp, tensors: Mapping[str, BitTensor]) -> Iterator[Gemm]:
    """The matrix products of ``op``, one at a time so that one window matrix is in memory."""
    a, b = tensors[op.a].to_bool(), tensors[op.b].to_bool()
    needed = tensors[op.needed].to_bool() if op.needed else None
    if op.conv is None:
        yield _checked(op, Gemm(a.T if op.transpose_a else a, b.T if op.transpose_b else b, needed, op.phase))
        return
    conv = op.conv
    _check_conv(op, conv, a, b)
    for group in range(conv.groups):
        parts = [_group_part(array, group, conv.groups, axis) for array, axis in _group_axes(op, a, b)]
        part_needed = None if needed is None else _group_part(needed, group, conv.groups, 0)
        yield from _lower_conv(op.phase, conv, parts[0], parts[1], part_needed)


def _checked(op: TracedOp, gemm: Gemm) -> Gemm:
    if gemm.a.ndim != 2 or gemm.b.ndim != 2 or gemm.a.shape[1] != gemm.b.shape[0]:
        raise TraceError(
            f"{op.name}: a {list(gemm.a.shape)} and b {list(gemm.b.shape)} do not multiply; "
            "pass a as [m, k] and b as [k, n]"
        )
    if gemm.needed is not None and gemm.needed.shape != (gemm.m, gemm.n):
        raise TraceError(
            f"{op.name}: the mask of kept outputs is {list(gemm.needed.shape)}, the output [{gemm.m}, {gemm.n}]; "
            "the trace is damaged, capture the step again"
        )
    return gemm


def _check_conv(op: TracedOp, conv: ConvShape, a: BoolArray, b: BoolArray) -> None:
    """Refuse operands that are not what the geometry says; only a damaged or foreign file has such."""
    taps = conv.kernel_size[0] * conv.kernel_size[1]
    if op.phase == "weight_grad":
        fits = a.ndim == b.ndim == 4 and a.shape[2:] == conv.output_size and b.shape[2:] == conv.input_size
    elif a.ndim == 4 and b.ndim == 2:
        maps = conv.input_size if op.phase == "forward" else conv.output_size
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


def _lower_conv(phase: str, conv: ConvShape, a: BoolArray, b: BoolArray, needed: BoolArray | None) -> Iterator[Gemm]:
    taps = conv.kernel_size[0] * conv.kernel_size[1]
    if phase == "forward":
        yield Gemm(windows(a, conv), b.T, phase=phase, taps=taps)
    elif phase == "weight_grad":
        yield Gemm(pixels(a).T, windows(b, conv), needed, phase, taps)
    else:
        yield from _input_gradient(conv, a, b)


def pixels(maps: BoolArray) -> BoolArray:
    """``[batch, channels, h, w]`` as ``[batch*h*w, channels]``."""
    return maps.transpose(0, 2, 3, 1).reshape(-1, maps.shape[1])


def windows(maps: BoolArray, conv: ConvShape) -> BoolArray:
    """The convolution windows of ``[batch, channels, h, w]`` as ``[batch*oh*ow, kh*kw*channels]``."""
    padded = np.pad(maps, ((0, 0), (0, 0), *((pad, pad) for pad in conv.padding)))
    height, width = conv.output_size
    taps = [
        padded[
            :,
            :,
            row * conv.dilation[0] :: conv.stride[0],
            col * conv.dilation[1] :: conv.stride[1],
        ][:, :, :height, :width].transpose(0, 2, 3, 1)
        for row in range(conv.kernel_size[0])
        for col in range(conv.kernel_size[1])
    ]
    return np.stack(taps, axis=3).reshape(-1, len(taps) * maps.shape[1])


def _input_gradient(conv: ConvShape, gradient: BoolArray, weight: BoolArray) -> Iterator[Gemm]:
    """One product per residue of the padded input pixel modulo the stride: only taps that can reach it."""
    out_channels, (kernel_height, kernel_width) = weight.shape[0], conv.kernel_size
    by_tap = weight.reshape(out_channels, kernel_height, kernel_width, -1)
    for row_residue in range(conv.stride[0]):
        row_taps = _taps_of_residue(conv, 0, row_residue)
        for col_residue in range(conv.stride[1]):
            col_taps = _taps_of_residue(conv, 1, col_residue)
            if not row_taps or not col_taps:
                continue  # no tap reaches these pixels: their gradient is zero without work
            gathered = _gather(conv, gradient, (row_residue, col_residue), row_taps, col_taps)
            filters = [by_tap[:, row, col] for row in row_taps for col in col_taps]
            yield Gemm(gathered, np.concatenate(filters, axis=0), phase="input_grad", taps=len(filters))


def _taps_of_residue(conv: ConvShape, axis: int, residue: int) -> list[int]:
    stride, dilation = conv.stride[axis], conv.dilation[axis]
    return [tap for tap in range(conv.kernel_size[axis]) if (tap * dilation) % stride == residue]


def _gather(
    conv: ConvShape, gradient: BoolArray, residue: tuple[int, int], row_taps: list[int], col_taps: list[int]
) -> BoolArray:
    """Gradients that reach the input pixels of one residue: ``[batch*pixels, taps*out_channels]``.

    The padded input pixel ``residue + stride * q`` meets output ``q - (tap * dilation - residue) / stride``.
    """
    rows, cols = (
        _output_positions(conv, axis, residue[axis], taps, gradient.shape[2 + axis])
        for axis, taps in ((0, row_taps), (1, col_taps))
    )
    padded = np.pad(gradient, ((0, 0), (0, 0), (0, 1), (0, 1)))  # index -1 reads this zero border
    parts = [padded[:, :, row[:, None], col[None, :]].transpose(0, 2, 3, 1) for row in rows for col in cols]
    return np.stack(parts, axis=3).reshape(-1, len(parts) * gradient.shape[1])


def _output_positions(
    conv: ConvShape, axis: int, residue: int, taps: list[int], outputs: int
) -> list[NDArray[np.int64]]:
    """For each tap, the output index that each real input pixel of the residue meets, -1 where there is none."""
    stride, dilation, padding = conv.stride[axis], conv.dilation[axis], conv.padding[axis]
    padded_pixels = np.arange(residue, padding + conv.input_size[axis], stride)
    real = padded_pixels[padded_pixels >= padding]
    positions = []
    for tap in taps:
        index = (real - tap * dilation) // stride
        positions.append(np.where((index >= 0) & (index < outputs), index, -1))
    return positions
