"""Convolutions as matrix products over im2col windows, channels innermost, for the three passes of training.

The input gradient of a strided convolution is split by output residue: the zeros that upsampling by the stride would
insert are then no MACs, on any machine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from acf.lowering.gemm import Gemm
from acf.lowering.im2col import gathered_rows, pixel_columns, window_columns, window_rows
from acf.trace.bits import BoolArray
from acf.trace.op import TracedConv

Builder = Callable[[BoolArray, BoolArray, BoolArray | None], Gemm]
"""Builds one product from a group's operands ``a`` and ``b`` and its mask of kept outputs."""


def _forward(conv: TracedConv) -> list[Builder]:
    """``im2col(x) [pixels, taps*in] @ weight^T [taps*in, out]``."""
    return [lambda x, weight, _: Gemm(window_rows(x, conv), weight.T, phase="forward", taps=conv.taps)]


def _weight_grad(conv: TracedConv) -> list[Builder]:
    """``gradient^T [out, pixels] @ im2col(x) [pixels, taps*in]``."""

    def build(gradient: BoolArray, x: BoolArray, needed: BoolArray | None) -> Gemm:
        columns = pixel_columns(gradient), window_columns(x, conv)
        return Gemm(*columns, needed, "weight_grad", conv.taps, transposed=(True, True))

    return [build]


def _input_grad(conv: TracedConv) -> list[Builder]:
    """One product per residue of the padded input pixel modulo the stride, over the taps that can reach it."""
    axes = [reached_residues(conv, axis) for axis in (0, 1)]
    return [partial(_residue_product, conv, (rows, columns)) for rows in axes[0] for columns in axes[1]]


CONV_PRODUCTS: dict[str, Callable[[TracedConv], list[Builder]]] = {
    "forward": _forward,
    "input_grad": _input_grad,
    "weight_grad": _weight_grad,
}
"""By phase, the products of one group of a convolution. Listing them builds no matrix."""


@dataclass(frozen=True)
class Residue:
    """Padded input pixels of one remainder modulo the stride along an axis, and the ``taps`` that reach them."""

    axis: int
    remainder: int
    taps: tuple[int, ...]


def reached_residues(conv: TracedConv, axis: int) -> list[Residue]:
    """Residues with a tap; the gradient of all other pixels is zero and needs no product."""
    taps_of: dict[int, list[int]] = {}
    for tap in range(conv.kernel_size[axis]):
        taps_of.setdefault(tap * conv.dilation[axis] % conv.stride[axis], []).append(tap)
    return [Residue(axis, remainder, tuple(taps)) for remainder, taps in sorted(taps_of.items())]


def _residue_product(
    conv: TracedConv,
    residues: tuple[Residue, Residue],
    gradient: BoolArray,
    weight: BoolArray,
    needed: BoolArray | None,
) -> Gemm:
    """``gathered gradient [pixels, taps*out] @ weight [taps*out, in]`` for the pixels of one residue."""
    rows, columns = residues
    by_tap = weight.reshape(weight.shape[0], *conv.kernel_size, -1)
    matrix = np.concatenate([by_tap[:, row, column] for row in rows.taps for column in columns.taps], axis=0)
    gathered = gathered_rows(gradient, output_positions(conv, rows), output_positions(conv, columns))
    taps = len(rows.taps) * len(columns.taps)
    return Gemm(gathered, matrix, phase="input_grad", taps=taps, transposed=(False, True))


def output_positions(conv: TracedConv, residue: Residue) -> list[NDArray[np.int64]]:
    """For each tap, the output index that each real input pixel of the residue meets, -1 where there is none.

    The padded input pixel ``remainder + stride * q`` meets output ``q - (tap * dilation - remainder) / stride``.
    """
    axis = residue.axis
    stride, dilation, padding, outputs = (
        values[axis] for values in (conv.stride, conv.dilation, conv.padding, conv.output_map)
    )
    padded_pixels = np.arange(residue.remainder, padding + conv.input_size[axis], stride)
    real = padded_pixels[padded_pixels >= padding]
    positions = []
    for tap in residue.taps:
        index = (real - tap * dilation) // stride
        positions.append(np.where((index >= 0) & (index < outputs), index, -1))
    return positions
