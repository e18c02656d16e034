"""A product as matrix multiplications over values: im2col of the operands, and the way back of the results.

The matrices are those of `acf.lowering`, which has them as zero patterns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from acf.lowering import Gemm
from acf.lowering.convolutions import Residue, output_positions, reached_residues
from acf.lowering.im2col import tap_views
from acf.runtime.numbers import Values
from acf.runtime.product import Product
from acf.trace.op import TracedConv

TRANSPOSED = {"forward": (False, False), "input_grad": (False, True), "weight_grad": (True, True)}
"""For each operand, whether memory holds it transposed to the reduction (`acf.lowering.Gemm`)."""


@dataclass(frozen=True, eq=False)
class MatrixProduct:
    """``a [m, k] @ b [k, n]``, float32; ``needed [m, n]`` marks the outputs that are kept, None: all."""

    a: Values
    b: Values
    needed: NDArray[np.bool_] | None
    phase: str
    taps: int = 1

    def gemm(self) -> Gemm:
        """The zero patterns."""
        patterns = self.a != 0, self.b != 0
        return Gemm(*patterns, self.needed, self.phase, self.taps, TRANSPOSED[self.phase])

    def whole(self) -> "MatrixProduct":
        """The same with every output kept."""
        return replace(self, needed=None)


def split_product(product: Product, operands: Sequence[Values]) -> list[MatrixProduct]:
    """The matrix multiplications of a product over its two operands, in order."""
    needed = None if product.phase != "weight_grad" or product.weight.is_dense else product.weight.kept
    if product.conv is not None:
        return _CONVOLUTIONS[product.phase](product, product.conv, operands, needed)
    first, second = operands
    if product.phase == "weight_grad":
        return [MatrixProduct(first.T, second, needed, product.phase)]
    weight = product.weight.to_matrix(second)
    return [MatrixProduct(first, weight.T if product.phase == "forward" else weight, None, product.phase)]


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
    """Operands without a zero: what a program is compiled for."""
    a, b, _ = product.arguments
    return np.ones(a.shape, dtype=np.float32), np.ones(b.shape, dtype=np.float32)


def _windows(maps: Values, conv: TracedConv) -> Values:
    """im2col of ``[batch, channels, h, w]``: ``[batch*oh*ow, kh*kw*channels]``, channels innermost."""
    padding = ((0, 0), *((pad, pad) for pad in conv.padding), (0, 0))
    padded = np.pad(maps.transpose(0, 2, 3, 1), padding)
    return _joined(list(tap_views(padded, conv)))


def _joined(taps: list[Values]) -> Values:
    """Taps ``[batch, oh, ow, channels]`` side by side: ``[batch*oh*ow, taps*channels]``."""
    batch, height, width, channels = taps[0].shape
    return np.stack(taps, axis=3).reshape(batch * height * width, len(taps) * channels)


def _pixels(maps: Values) -> Values:
    """``[batch, channels, h, w]`` as ``[batch*h*w, channels]``."""
    return maps.transpose(0, 2, 3, 1).reshape(-1, maps.shape[1])


Split = Callable[[Product, TracedConv, Sequence[Values], NDArray[np.bool_] | None], list[MatrixProduct]]


def _forward(
    product: Product, conv: TracedConv, operands: Sequence[Values], needed: NDArray[np.bool_] | None
) -> list[MatrixProduct]:
    x, blocks = operands
    return [MatrixProduct(_windows(x, conv), product.weight.to_matrix(blocks).T, needed, "forward", conv.taps)]


def _weight_grad(
    product: Product, conv: TracedConv, operands: Sequence[Values], needed: NDArray[np.bool_] | None
) -> list[MatrixProduct]:
    gradient, x = operands
    return [MatrixProduct(_pixels(gradient).T, _windows(x, conv), needed, "weight_grad", conv.taps)]


def _input_grad(
    product: Product, conv: TracedConv, operands: Sequence[Values], needed: NDArray[np.bool_] | None
) -> list[MatrixProduct]:
    """One product per residue of the padded input pixel modulo the stride, over the taps that can reach it."""
    gradient, blocks = operands
    by_tap = product.weight.to_matrix(blocks).reshape(product.weight.rows, *conv.kernel_size, -1)
    bordered = np.pad(gradient.transpose(0, 2, 3, 1), ((0, 0), (0, 1), (0, 1), (0, 0)))  # position -1 reads 0
    products = []
    for rows, columns in _residues(conv):
        matrix = np.concatenate([by_tap[:, row, column] for row in rows.taps for column in columns.taps])
        row_positions, column_positions = output_positions(conv, rows), output_positions(conv, columns)
        taps = [bordered[:, row[:, None], column[None, :]] for row in row_positions for column in column_positions]
        products.append(MatrixProduct(_joined(taps), matrix, needed, "input_grad", len(taps)))
    return products


_CONVOLUTIONS: dict[str, Split] = {"forward": _forward, "input_grad": _input_grad, "weight_grad": _weight_grad}


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
