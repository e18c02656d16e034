"""A product as matrix multiplications over values: im2col of the operands, and the way back of the results.

The matrices are those of `acf.lowering`, which has them as zero patterns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from acf.lowering import Gemm
from acf.lowering.convolutions import CONV_PRODUCTS, Residue, reached_residues
from acf.runtime.implicit_matrix import ImplicitMatrix, Offsets, add_offsets
from acf.runtime.numbers import Values
from acf.runtime.product import Product
from acf.trace.op import TracedConv

Mask = NDArray[np.bool_] | None

TRANSPOSED = {"forward": (False, False), "input_grad": (False, True), "weight_grad": (True, True)}
"""For each operand, whether memory holds it transposed to the reduction (`acf.lowering.Gemm`)."""


@dataclass(frozen=True, eq=False)
class MatrixProduct:
    """``a [m, k] @ b [k, n]``, float32; ``needed [m, n]`` marks the outputs that are kept, None: all.

    The matrices are made by ``make`` when they are first read. ``patterns`` makes the zero patterns of a convolution,
    given ``needed``, without its im2col matrices.
    """

    make: Callable[[], "Pair"]
    needed: Mask
    phase: str
    patterns: Callable[[Mask], Gemm] | None = None

    @cached_property
    def operands(self) -> "Pair":
        """``a`` and ``b`` where they lie in memory."""
        return self.make()

    @property
    def a(self) -> Values:
        """The left operand as an array."""
        return self.operands[0].values()

    @property
    def b(self) -> Values:
        """The right operand as an array."""
        return self.operands[1].values()

    def gemm(self) -> Gemm:
        """The zero patterns."""
        if self.patterns is not None:
            return self.patterns(self.needed)
        patterns = self.a != 0, self.b != 0
        return Gemm(*patterns, self.needed, self.phase, transposed=TRANSPOSED[self.phase])

    def whole(self) -> "MatrixProduct":
        """The same with every output kept."""
        return replace(self, needed=None)


def split_product(product: Product, operands: Sequence[Values]) -> list[MatrixProduct]:
    """The matrix multiplications of a product over its two operands, in order."""
    needed = None if product.phase != "weight_grad" or product.weight.is_dense else product.weight.kept
    first, second = operands
    if product.phase != "weight_grad":
        second = product.weight.to_matrix(second)
    if product.conv is not None:
        return _split_convolution(product.phase, product.conv, (first, second), needed)
    pairs = {"forward": (first, second.T), "input_grad": (first, second), "weight_grad": (first.T, second)}
    a, b = pairs[product.phase]
    return [MatrixProduct(lambda: (ImplicitMatrix.of(a), ImplicitMatrix.of(b)), needed, product.phase)]


def _split_convolution(
    phase: str, conv: TracedConv, operands: tuple[Values, Values], needed: Mask
) -> list[MatrixProduct]:
    """The matrices by im2col of the values, their zero patterns by that of the lowering, one pair after the other."""
    bits = operands[0] != 0, operands[1] != 0
    pairs = zip(_CONVOLUTIONS[phase](conv), CONV_PRODUCTS[phase](conv), strict=True)
    return [MatrixProduct(partial(make, *operands), needed, phase, partial(build, *bits)) for make, build in pairs]


def join_results(product: Product, results: Sequence[Values]) -> Values:
    """The result of a product from those of its matrix multiplications."""
    if product.phase == "weight_grad":
        return product.weight.from_matrix(results[0])
    if product.conv is None:
        return results[0]
    if product.phase == "forward":
        by_pixel = results[0].reshape(product.rows, *product.conv.output_map, -1)
        return np.ascontiguousarray(by_pixel.transpose(0, 3, 1, 2))
    return _scattered(product, product.conv, results)


def full_operands(product: Product) -> tuple[Values, Values]:
    """Operands without a zero, as bytes: what a program is compiled for."""
    a, b, _ = product.arguments
    ones: Any = np.ones(a.shape, dtype=np.uint8), np.ones(b.shape, dtype=np.uint8)
    return cast(tuple[Values, Values], ones)


def _map_offsets(maps: Values) -> tuple[Offsets, Offsets, Offsets]:
    """Where every map, channel and row of ``[batch, channels, h, w]`` begins in its memory."""
    batch, channels, height, width = maps.shape
    size = height * width
    return np.arange(batch) * channels * size, np.arange(channels) * size, np.arange(height) * width


def _windows(maps: Values, conv: TracedConv) -> ImplicitMatrix:
    """im2col of ``[batch, channels, h, w]``: ``[batch*oh*ow, kh*kw*channels]``, channels innermost."""
    padded = np.pad(maps, ((0, 0), (0, 0), *((pad, pad) for pad in conv.padding)))
    images, channels, rows = _map_offsets(padded)
    height, width = conv.output_map
    pixels = rows[: height * conv.stride[0] : conv.stride[0]], np.arange(width) * conv.stride[1]
    taps = np.arange(conv.kernel_size[0]) * conv.dilation[0], np.arange(conv.kernel_size[1]) * conv.dilation[1]
    tap_rows = taps[0] * padded.shape[3]
    return ImplicitMatrix(padded.reshape(-1), add_offsets(images, *pixels), add_offsets(tap_rows, taps[1], channels))


def _pixels(maps: Values) -> ImplicitMatrix:
    """``[batch, channels, h, w]`` as ``[batch*h*w, channels]``."""
    maps = np.ascontiguousarray(maps)
    images, channels, rows = _map_offsets(maps)
    return ImplicitMatrix(maps.reshape(-1), add_offsets(images, rows, np.arange(maps.shape[3])), channels)


Pair = tuple[ImplicitMatrix, ImplicitMatrix]
Make = Callable[[Values, Values], Pair]
"""Makes the two matrices of a multiplication from the operands of a pass; a weight is ``[out, kh*kw*in]``."""


def _forward(conv: TracedConv) -> list[Make]:
    return [lambda x, weight: (_windows(x, conv), ImplicitMatrix.of(weight.T))]


def _weight_grad(conv: TracedConv) -> list[Make]:
    return [lambda gradient, x: (_pixels(gradient).T, _windows(x, conv))]


def _input_grad(conv: TracedConv) -> list[Make]:
    """One product per residue of the padded input pixel modulo the stride, over the taps that can reach it."""
    return [partial(_residue_matrices, conv, residues) for residues in _residues(conv)]


def _residue_matrices(conv: TracedConv, residues: tuple[Residue, Residue], gradient: Values, weight: Values) -> Pair:
    rows, columns = residues
    by_tap = weight.reshape(weight.shape[0], *conv.kernel_size, -1)
    matrix = np.concatenate([by_tap[:, row, column] for row in rows.taps for column in columns.taps])
    spans = _met_outputs(conv, rows), _met_outputs(conv, columns)
    padded = np.pad(gradient, ((0, 0), (0, 0), *(span.border for span in spans)))
    images, channels, _ = _map_offsets(padded)
    width = padded.shape[3]
    pixels = np.arange(spans[0].pixels) * width, np.arange(spans[1].pixels)
    taps = spans[0].first * width, spans[1].first
    gathered = ImplicitMatrix(padded.reshape(-1), add_offsets(images, *pixels), add_offsets(*taps, channels))
    return gathered, ImplicitMatrix.of(matrix)


@dataclass(frozen=True, eq=False)
class _Span:
    """The outputs along an axis that the real input pixels of a residue meet, one further for every pixel.

    ``first [taps]``: the output that the first pixel meets, counted from the first of the zeros that ``border`` puts
    before and behind the outputs.
    """

    pixels: int
    first: Offsets
    border: tuple[int, int]


def _met_outputs(conv: TracedConv, residue: Residue) -> _Span:
    axis = residue.axis
    pixels = _real_pixels(conv, residue) + conv.padding[axis]
    if not pixels.size:
        return _Span(0, np.zeros(len(residue.taps), dtype=np.int64), (0, 0))
    first = (pixels[0] - np.array(residue.taps) * conv.dilation[axis]) // conv.stride[axis]
    before = max(0, -int(first.min()))
    after = max(0, int(first.max()) + pixels.size - conv.output_map[axis])
    return _Span(pixels.size, first + before, (before, after))


_CONVOLUTIONS: dict[str, Callable[[TracedConv], list[Make]]] = {
    "forward": _forward,
    "input_grad": _input_grad,
    "weight_grad": _weight_grad,
}
"""By phase, what makes the matrices of a convolution, in the order of `acf.lowering.convolutions.CONV_PRODUCTS`."""


def _residues(conv: TracedConv) -> list[tuple[Residue, Residue]]:
    rows, columns = (reached_residues(conv, axis) for axis in (0, 1))
    return [(row, column) for row in rows for column in columns]


def _scattered(product: Product, conv: TracedConv, results: Sequence[Values]) -> Values:
    """The input gradient ``[batch, channels, h, w]``: the pixels of every residue in their places, 0 where none is."""
    batch, channels, *size = product.input_shape
    by_pixel = np.zeros((batch, *size, channels), dtype=np.float32)
    for (rows, columns), result in zip(_residues(conv), results, strict=True):
        row_pixels, column_pixels = _real_pixels(conv, rows), _real_pixels(conv, columns)
        shape = batch, row_pixels.size, column_pixels.size, channels
        by_pixel[:, row_pixels[:, None], column_pixels[None, :]] = result.reshape(shape)
    return np.ascontiguousarray(by_pixel.transpose(0, 3, 1, 2))


def _real_pixels(conv: TracedConv, residue: Residue) -> NDArray[np.int64]:
    """Input pixels of a residue along its axis, without padding."""
    axis = residue.axis
    pixels = np.arange(residue.remainder, conv.padding[axis] + conv.input_size[axis], conv.stride[axis])
    return pixels[pixels >= conv.padding[axis]] - conv.padding[axis]
