"""The values that a fabric computes, bit for bit: bf16 products, added in float32 in the fabric's own order.

Rules, as in `acf.rtl.design.arithmetic`: operands, products and sums below the least normal number become zero of the
same sign; sums round to the nearest, ties to even; a pair with a zero in it is skipped; every NaN is 0x7FC00000.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from acf.jit import compiled
from acf.lowering import FabricShape
from acf.lowering.mapping import Mapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import TiledProduct
from acf.runtime.numbers import Values, round_to_bf16

Order = NDArray[np.int64]
"""Elements of the reduction in the order in which they are added."""

LEAST = np.float32(2.0**-126)
QUIET_NAN = np.uint32(0x7FC00000)

STRIP = 16
"""Columns of a strip, as `_add_strips` has them."""

SPARSE_SHARE = 0.5
"""Of the right operand in strips; below it, going by strips is faster (measured with 64 columns)."""

THREADED_PRODUCTS = 1 << 22
"""Multiplications from which on threads pay."""

SAFE_PRODUCT = 2.0**-110
"""With every product at least this, sums are multiples of 2**-126, so nothing is flushed."""


def fabric_values(a: Values, b: Values, product: TiledProduct, mapping: Mapping, shape: FabricShape) -> Values:
    """``a [m, k] @ b [k, n]`` of bf16 values as a fabric computes it under ``mapping``, float32 ``[m, n]``.

    Operands have no subnormal numbers (`flushed`). Output-stationary results are rounded to bf16. Output tiles that are
    not needed, or that the mapping leaves out, are zero.
    """
    serial, parallel = (b.T, a.T) if product.swapped else (a, b)
    operands = Operands.of(np.ascontiguousarray(serial), np.ascontiguousarray(parallel))
    output = _COMPUTE[type(mapping)](operands, product, mapping, shape)
    output = np.where(np.isnan(output), QUIET_NAN.view(np.float32), output)
    return np.ascontiguousarray(output.T if product.swapped else output)


@dataclass(frozen=True, eq=False)
class Operands:
    """``left [m, k]`` and ``right [k, n]``; ``is_plain``: no product or sum is subnormal, and all numbers are finite.

    ``needed``: bool ``[m, strips of n]``, the outputs that are computed; None: all.
    """

    left: Values
    right: Values
    is_plain: bool
    needed: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, left: Values, right: Values) -> "Operands":
        """Operands of which all outputs are computed."""
        least = _least_magnitude(left.reshape(-1)) * _least_magnitude(right.reshape(-1))
        return cls(left, right, least >= SAFE_PRODUCT)


def ordered_product(left: Values, right: Values, order: Order | None = None) -> Values:
    """``left [m, k] @ right [k, n]`` of bf16 values, each sum in one order, with the rules of this module."""
    operands = Operands.of(np.ascontiguousarray(left), np.ascontiguousarray(right))
    return multiply(operands, np.arange(left.shape[1]) if order is None else order)


def multiply(operands: Operands, order: Order) -> Values:
    """The product in ``order``, by the fastest loop that keeps the rules."""
    left, right, needed = operands.left, operands.right, operands.needed
    output = np.zeros((left.shape[0], right.shape[1]), dtype=np.float32)
    if not order.size:
        return output
    if not operands.is_plain:
        _in_threads(lambda rows: _add_products_flushed(left[rows], right, order, output[rows]), output, order)
        return output
    if needed is None:
        needed = np.ones((len(left), -(-right.shape[1] // STRIP)), dtype=bool)
    strips = Strips.of(right, order)
    if strips.steps.size * STRIP * needed.mean() < SPARSE_SHARE * order.size * right.shape[1]:
        _in_threads(lambda rows: _add_strips(left[rows], *strips, needed[rows], output[rows]), output, order)
    else:
        _in_threads(lambda rows: _add_products(left[rows], right, order, output[rows]), output, order)
    return output


class Strips(NamedTuple):
    """The right operand in strips of `STRIP` columns, each with the elements of the reduction that are not all zero.

    Strip ``s`` has ``steps[first[s] : first[s + 1]]``, elements of the reduction in order, and the same rows of
    ``factors [steps, STRIP]``.
    """

    steps: Order
    factors: Values
    first: NDArray[np.int64]

    @classmethod
    def of(cls, right: Values, order: Order) -> "Strips":
        """Cut ``right [k, n]``; the last strip is filled up with zeros."""
        padded = np.pad(right, ((0, 0), (0, -right.shape[1] % STRIP)))
        by_strip = np.ascontiguousarray(padded.reshape(len(right), -1, STRIP).transpose(1, 0, 2))
        strips, places = np.nonzero((by_strip != 0).max(axis=2)[:, order])
        steps = order[places]
        first = np.searchsorted(strips, np.arange(len(by_strip) + 1)).astype(np.int64)
        return cls(steps, by_strip[strips, steps], first)


def _in_threads(work: Callable[[slice], None], output: Values, order: Order) -> None:
    """Share the rows of the output among torch's number of threads, where there are enough to pay."""
    rows, threads = output.shape[0], torch.get_num_threads()
    if threads == 1 or output.size * order.size < THREADED_PRODUCTS:
        work(slice(0, rows))
        return
    chunk = -(-rows // (2 * threads))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, (slice(first, first + chunk) for first in range(0, rows, chunk))))


def flushed(values: Values) -> Values:
    """Subnormal numbers become zero of the same sign."""
    return np.where(np.abs(values) < LEAST, np.copysign(np.float32(0), values), values)


def _output_stationary(
    operands: Operands, product: TiledProduct, mapping: OutputStationaryMapping, shape: FabricShape
) -> Values:
    """Round by round: the columns of a round share an order of the k_tiles."""
    left, right = operands.left, operands.right
    output = np.zeros((left.shape[0], right.shape[1]), dtype=np.float32)
    for number, k_tiles in enumerate(mapping.k_orders(product.present)):
        column_tiles = np.flatnonzero(mapping.round_of == number)
        columns = _elements(column_tiles, shape.tile, right.shape[1])
        if columns.size:
            needed = None if product.needed is None else product.needed[:, columns // shape.tile]
            part = _with_mask(replace(operands, right=np.ascontiguousarray(right[:, columns])), needed, shape.tile)
            output[:, columns] = multiply(part, _elements(k_tiles, shape.tile, left.shape[1]))
    return round_to_bf16(output)


def _split_k(operands: Operands, product: TiledProduct, mapping: SplitKMapping, shape: FabricShape) -> Values:
    """K_tiles are dealt to mesh rows, then to groups of mesh columns; sums of rows are added, then those of groups."""
    left, right, columns = operands.left, operands.right, np.arange(operands.right.shape[1])
    kept = np.zeros((product.serial.tiles, product.parallel.tiles), dtype=bool)
    kept[mapping.output_rows, mapping.output_columns] = True
    masked = _with_mask(operands, None if kept.all() else kept[:, columns // shape.tile], shape.tile)
    k_tiles = np.arange(product.k_tiles)
    groups = []
    for group in range(mapping.split):
        of_group = k_tiles[k_tiles // shape.mesh_rows % mapping.split == group]
        parts = []
        for mesh_row in range(shape.mesh_rows):
            mine = _elements(of_group[of_group % shape.mesh_rows == mesh_row], shape.tile, left.shape[1])
            part = replace(masked, left=np.ascontiguousarray(left[:, mine]), right=right[mine])
            parts.append(multiply(part, np.arange(mine.size)))
        groups.append(reduce(_add_flushed, parts))
    total = reduce(_add_flushed, groups)
    return np.where(np.repeat(kept, shape.tile, axis=0)[: len(total), columns // shape.tile], total, np.float32(0))


def _with_mask(operands: Operands, needed: NDArray[np.bool_] | None, tile: int) -> Operands:
    """Operands with the mask ``needed [row tiles, n]`` of their outputs, by strips."""
    if needed is None:
        return operands
    padded = np.pad(needed, ((0, 0), (0, -needed.shape[1] % STRIP)))
    by_strip = padded.reshape(len(needed), -1, STRIP).any(axis=2)
    return replace(operands, needed=np.repeat(by_strip, tile, axis=0)[: len(operands.left)])


_COMPUTE: dict[type, Callable[..., Values]] = {OutputStationaryMapping: _output_stationary, SplitKMapping: _split_k}


def _elements(tiles: NDArray[np.int64], tile: int, length: int) -> Order:
    """The elements of tiles, in their order; the last tile may be cut by ``length``."""
    elements = (tiles[:, None] * tile + np.arange(tile)).reshape(-1)
    return elements[elements < length]


def _add_flushed(one: Values, other: Values) -> Values:
    with np.errstate(over="ignore", invalid="ignore"):
        return flushed(one + other)


@compiled
def _least_magnitude(values: Values) -> float:
    """The least non-zero magnitude; 1 where all are zero, 0 where one is not finite."""
    least = np.float32(1.0)
    finite = True
    for place in range(values.size):
        magnitude = abs(values[place])
        finite &= magnitude < np.float32(np.inf)  # false for NaN, too
        least = magnitude if magnitude < least and magnitude != np.float32(0) else least
    return float(least) if finite else 0.0


@compiled
def _add_strips(
    left: Values,
    steps: Order,
    factors: Values,
    first: NDArray[np.int64],
    needed: NDArray[np.bool_],
    output: Values,
) -> None:
    """`_add_products` strip by strip; the length of the inner loop is a constant, so it becomes vector code."""
    sums = np.zeros(16, dtype=np.float32)
    for row in range(left.shape[0]):
        values = left[row]
        for strip in range(first.size - 1):
            if not needed[row, strip]:
                continue
            for column in range(16):
                sums[column] = np.float32(0)
            for step in range(first[strip], first[strip + 1]):
                value = values[steps[step]]
                for column in range(16):
                    sums[column] += value * factors[step, column]
            width = min(16, output.shape[1] - 16 * strip)
            for column in range(width):
                output[row, 16 * strip + column] = sums[column]


@compiled
def _add_products(left: Values, right: Values, order: Order, output: Values) -> None:
    """``output += left @ right`` in ``order``, where nothing is flushed; products of bf16 are exact in float32."""
    for row in range(left.shape[0]):
        sums = output[row]
        for place in range(order.size):
            k = order[place]
            value = left[row, k]
            if value == np.float32(0):
                continue
            factors = right[k]
            for column in range(sums.size):
                sums[column] += value * factors[column]


@compiled
def _add_products_flushed(left: Values, right: Values, order: Order, output: Values) -> None:
    """The same with every rule: subnormal products and sums become zero, a pair with a zero is skipped."""
    least, zero = np.float32(2.0**-126), np.float32(0.0)
    for row in range(left.shape[0]):
        sums = output[row]
        for place in range(order.size):
            k = order[place]
            value = left[row, k]
            if value == zero:
                continue
            factors = right[k]
            for column in range(sums.size):
                factor = factors[column]
                product = np.float32(value * factor)
                product = product if not abs(product) < least else np.float32(np.copysign(zero, product))
                total = np.float32(sums[column] + product)
                total = total if not abs(total) < least else np.float32(np.copysign(zero, total))
                sums[column] = total if factor != zero else sums[column]
