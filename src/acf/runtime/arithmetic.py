"""The values that a fabric computes, bit for bit: bf16 products, added in float32 in the fabric's own order.

Rules, as in `acf.rtl.design.arithmetic`: operands, products and sums below the least normal number become zero of the
same sign; sums round to the nearest, ties to even; a pair with a zero in it is skipped; every NaN is 0x7FC00000.
"""

import numpy as np
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

SAFE_PRODUCT = 2.0**-110
"""With every product at least this, sums are multiples of 2**-126, so nothing is flushed."""


def fabric_values(a: Values, b: Values, product: TiledProduct, mapping: Mapping, shape: FabricShape) -> Values:
    """``a [m, k] @ b [k, n]`` of bf16 values as a fabric computes it under ``mapping``, float32 ``[m, n]``.

    Output-stationary results are rounded to bf16. Outputs of columns that the mapping leaves out are zero.
    """
    serial, parallel = (b.T, a.T) if product.swapped else (a, b)
    serial, parallel = (flushed(np.ascontiguousarray(each)) for each in (serial, parallel))
    compute = _COMPUTE[type(mapping)]
    output = compute(serial, parallel, product, mapping, shape)
    output = np.where(np.isnan(output), QUIET_NAN.view(np.float32), output)
    return np.ascontiguousarray(output.T if product.swapped else output)


def ordered_product(left: Values, right: Values, order: Order | None = None) -> Values:
    """``left [m, k] @ right [k, n]`` of bf16 values, each sum in one order, with the rules of this module."""
    order = np.arange(left.shape[1]) if order is None else order
    output = np.zeros((left.shape[0], right.shape[1]), dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        multiply = _add_products if _needs_no_flush(left, right) else _add_products_flushed
        multiply(left, right, order, output)
    return output


def flushed(values: Values) -> Values:
    """Subnormal numbers become zero of the same sign."""
    return np.where(np.abs(values) < LEAST, np.copysign(np.float32(0), values), values)


def _output_stationary(
    serial: Values, parallel: Values, product: TiledProduct, mapping: OutputStationaryMapping, shape: FabricShape
) -> Values:
    """Round by round: the columns of a round share an order of the k_tiles."""
    output = np.zeros((serial.shape[0], parallel.shape[1]), dtype=np.float32)
    for number, k_tiles in enumerate(mapping.k_orders(product.present)):
        columns = _elements(np.flatnonzero(mapping.round_of == number), shape.tile, parallel.shape[1])
        if columns.size:
            order = _elements(k_tiles, shape.tile, serial.shape[1])
            output[:, columns] = ordered_product(serial, np.ascontiguousarray(parallel[:, columns]), order)
    return round_to_bf16(output)


def _split_k(
    serial: Values, parallel: Values, product: TiledProduct, mapping: SplitKMapping, shape: FabricShape
) -> Values:
    """K_tiles are dealt to mesh rows, then to groups of mesh columns; sums of rows are added, then those of groups."""
    k_tiles = np.arange(product.k_tiles)
    total: Values | None = None
    for group in range(mapping.split):
        group_total: Values | None = None
        for mesh_row in range(shape.mesh_rows):
            mine = k_tiles[
                (k_tiles % shape.mesh_rows == mesh_row) & (k_tiles // shape.mesh_rows % mapping.split == group)
            ]
            part = ordered_product(serial, parallel, _elements(mine, shape.tile, serial.shape[1]))
            group_total = part if group_total is None else _add_flushed(group_total, part)
        assert group_total is not None
        total = group_total if total is None else _add_flushed(total, group_total)
    assert total is not None
    return _kept_tiles(total, mapping, shape)


_COMPUTE = {OutputStationaryMapping: _output_stationary, SplitKMapping: _split_k}


def _kept_tiles(values: Values, mapping: SplitKMapping, shape: FabricShape) -> Values:
    """Zero outside the output tiles of the mapping."""
    rows, columns = (-(-size // shape.tile) for size in values.shape)
    kept = np.zeros((rows, columns), dtype=bool)
    kept[mapping.output_rows, mapping.output_columns] = True
    spread = np.repeat(np.repeat(kept, shape.tile, axis=0), shape.tile, axis=1)
    return np.where(spread[: values.shape[0], : values.shape[1]], values, np.float32(0))


def _elements(tiles: NDArray[np.int64], tile: int, length: int) -> Order:
    """The elements of tiles, in their order; the last tile may be cut by ``length``."""
    elements = (tiles[:, None] * tile + np.arange(tile)).reshape(-1)
    return elements[elements < length]


def _add_flushed(one: Values, other: Values) -> Values:
    with np.errstate(over="ignore", invalid="ignore"):
        return flushed(one + other)


def _needs_no_flush(left: Values, right: Values) -> bool:
    """Whether no product or sum can be subnormal, infinite operands aside: then zeros need no special care either."""
    return _least_magnitude(left) * _least_magnitude(right) >= SAFE_PRODUCT and bool(
        np.isfinite(left).all() and np.isfinite(right).all()
    )


def _least_magnitude(values: Values) -> float:
    """The least non-zero magnitude; 1 where all are zero."""
    magnitudes = np.abs(values)
    nonzero = magnitudes[magnitudes > 0]
    return float(nonzero.min()) if nonzero.size else 1.0


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
