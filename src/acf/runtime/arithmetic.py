"""The values that a fabric computes, bit for bit: bf16 products, added in float32 in the fabric's own order.

Rules, as in `acf.rtl.design.arithmetic`: operands, products and sums below the least normal number become zero of the
same sign; sums round to the nearest, ties to even; a pair with a zero in it is skipped; every NaN is 0x7FC00000.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from acf.lowering import FabricShape
from acf.lowering.mapping import Mapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import TiledProduct
from acf.runtime.arithmetic_kernels import (
    add_tiles,
    add_tiles_flushed,
    flush,
    magnitude_range,
    mark_tiles,
)
from acf.runtime.implicit_matrix import ImplicitMatrix
from acf.runtime.numbers import Values, round_to_bf16

T = TypeVar("T")
S = TypeVar("S")

Order = NDArray[np.int64]
"""Tiles of the reduction in the order in which they are added."""

TILE = 16
"""Side of the tiles in which a machine without a fabric is computed; its sums do not depend on it."""

QUIET_NAN = np.uint32(0x7FC00000)

THREADED_PRODUCTS = 1 << 22
"""Multiplications from which on threads pay."""

SAFE_PRODUCT = 2.0**-110
"""With every product at least this, sums are multiples of 2**-126, so nothing is flushed."""


@dataclass(frozen=True, eq=False)
class _Tiled:
    """A matrix in tiles of ``tile`` x ``tile``: ``present`` marks those with a non-zero, bool ``[tiles, tiles]``."""

    matrix: ImplicitMatrix
    tile: int
    present: NDArray[np.bool_]

    @classmethod
    def of(cls, matrix: ImplicitMatrix, tile: int) -> "_Tiled":
        """``matrix``, in which subnormal numbers are zero already, and its tiles."""
        rows, columns = (-(-size // tile) for size in matrix.shape)
        present = np.zeros((rows, columns), dtype=bool)
        mark_tiles(matrix.values(), tile, present)
        return cls(matrix, tile, present)

    @cached_property
    def values(self) -> Values:
        """The matrix as a row-major array."""
        return self.matrix.values()

    @cached_property
    def magnitudes(self) -> tuple[float, float]:
        """The least non-zero magnitude, 1 where all are zero, and the greatest, NaN where one is."""
        least, greatest = (np.uint32(min(bits, int(QUIET_NAN))) for bits in magnitude_range(self.matrix.memory))
        is_zero = greatest == 0
        return 1.0 if is_zero else float(least.view(np.float32)), float(greatest.view(np.float32))


def fabric_values(
    a: ImplicitMatrix, b: ImplicitMatrix, product: TiledProduct, mapping: Mapping, shape: FabricShape
) -> Values:
    """``a [m, k] @ b [k, n]`` of `flushed` bf16 values as a fabric computes it under ``mapping``, float32 ``[m, n]``.

    Output-stationary results are rounded to bf16. Output tiles that nobody needs, or that the mapping leaves out, are
    zero.
    """
    left, right = (b.T, a.T) if product.swapped else (a, b)
    serial = _Tiled(left, shape.tile, np.ascontiguousarray(product.serial.tile_nonzeros > 0))
    parallel = _Tiled(right, shape.tile, np.ascontiguousarray(product.present.T))
    output = _COMPUTE[type(mapping)](serial, parallel, product, mapping, shape)
    output = np.where(np.isnan(output), QUIET_NAN.view(np.float32), output)
    return np.ascontiguousarray(output.T if product.swapped else output)


def ordered_product(left: Values, right: Values, order: Order | None = None, tile: int = TILE) -> Values:
    """``left [m, k] @ right [k, n]`` of `flushed` bf16 values, with the rules of this module.

    ``order``: the tiles of ``tile`` elements of the reduction, as they are added; by rising k where it is None.
    """
    tiled = _Tiled.of(ImplicitMatrix.of(left), tile), _Tiled.of(ImplicitMatrix.of(right), tile)
    order = np.arange(tiled[0].present.shape[1]) if order is None else order
    kept = np.ones((tiled[0].present.shape[0], tiled[1].present.shape[1]), dtype=bool)
    output = np.zeros((left.shape[0], right.shape[1]), dtype=np.float32)
    _accumulate(*tiled, order, kept, output)
    return output


def flushed(values: Values) -> Values:
    """A copy, row-major, in which subnormal numbers are zero of the same sign."""
    result = np.array(values, dtype=np.float32, order="C")
    flush(result.reshape(-1))
    return result


def _accumulate(left: _Tiled, right: _Tiled, k_tiles: Order, kept: NDArray[np.bool_], output: Values) -> None:
    """Add ``left @ right`` to the ``kept`` tiles of ``output``, in the order of ``k_tiles`` and by rising k in each."""
    multiply = add_tiles if _needs_no_flush(left, right) else add_tiles_flushed

    matrix, right_values = left.matrix, right.values

    def work(tiles: slice) -> None:
        rows = slice(tiles.start * left.tile, tiles.stop * left.tile)
        part = matrix.memory, matrix.row_at[rows], matrix.column_at, right_values, left.tile, k_tiles
        multiply(*part, left.present[tiles], right.present, kept[tiles], output[rows])

    _in_threads(work, left, k_tiles.size * left.tile * output.size)


def _in_threads(work: Callable[[slice], None], left: _Tiled, products: int) -> None:
    """Share the rows of tiles among torch's number of threads, where there are enough products to pay."""
    tiles, threads = left.present.shape[0], torch.get_num_threads()
    if threads == 1 or products < THREADED_PRODUCTS:
        work(slice(0, tiles))
        return
    chunk = -(-tiles // (2 * threads))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, (slice(first, first + chunk) for first in range(0, tiles, chunk))))


def in_parallel(one: Callable[[], T], other: Callable[[], S], products: int) -> tuple[T, S]:
    """The results of two calls, in two threads where ``products`` are enough to pay and torch may use several."""
    if torch.get_num_threads() == 1 or products < THREADED_PRODUCTS:
        return one(), other()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(other)
        return one(), running.result()


def _output_stationary(
    serial: _Tiled, parallel: _Tiled, product: TiledProduct, mapping: OutputStationaryMapping, shape: FabricShape
) -> Values:
    """Round by round: the columns of a round share an order of the k_tiles."""
    output = np.zeros((serial.matrix.shape[0], parallel.matrix.shape[1]), dtype=np.float32)
    needed = np.ones((serial.present.shape[0], parallel.present.shape[1]), dtype=bool)
    needed &= True if product.needed is None else product.needed
    for number, k_tiles in enumerate(mapping.k_orders(product.present)):
        _accumulate(serial, parallel, k_tiles, needed & (mapping.round_of == number), output)
    return round_to_bf16(output)


def _split_k(
    serial: _Tiled, parallel: _Tiled, product: TiledProduct, mapping: SplitKMapping, shape: FabricShape
) -> Values:
    """K_tiles are dealt to mesh rows, then to groups of mesh columns; sums of rows are added, then those of groups."""
    k_tiles = np.arange(product.k_tiles)
    kept = np.zeros((serial.present.shape[0], parallel.present.shape[1]), dtype=bool)
    kept[mapping.output_rows, mapping.output_columns] = True
    total: Values | None = None
    for group in range(mapping.split):
        group_total: Values | None = None
        for mesh_row in range(shape.mesh_rows):
            mine = k_tiles[
                (k_tiles % shape.mesh_rows == mesh_row) & (k_tiles // shape.mesh_rows % mapping.split == group)
            ]
            part = np.zeros((serial.matrix.shape[0], parallel.matrix.shape[1]), dtype=np.float32)
            _accumulate(serial, parallel, mine, kept, part)
            group_total = part if group_total is None else _add_flushed(group_total, part)
        assert group_total is not None
        total = group_total if total is None else _add_flushed(total, group_total)
    assert total is not None
    return total


_COMPUTE: dict[type, Callable[..., Values]] = {OutputStationaryMapping: _output_stationary, SplitKMapping: _split_k}


def _add_flushed(one: Values, other: Values) -> Values:
    with np.errstate(over="ignore", invalid="ignore"):
        return flushed(one + other)


def _needs_no_flush(left: _Tiled, right: _Tiled) -> bool:
    """Whether no product or sum can be subnormal, infinite operands aside: then zeros need no special care either."""
    (left_least, left_greatest), (right_least, right_greatest) = left.magnitudes, right.magnitudes
    return left_least * right_least >= SAFE_PRODUCT and isfinite(left_greatest) and isfinite(right_greatest)
