"""Stage 2: a matrix product cut into tiles, with one operand chosen to be streamed and the other to stay."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.lowering.fabric_shape import FabricShape
from acf.lowering.gemm import Gemm
from acf.lowering.tiles import TiledRows, tiles_any

Presence = NDArray[np.bool_]
"""Which tiles of the parallel operand hold a non-zero, bool ``[parallel tiles, k_tiles]``."""


@dataclass(frozen=True, eq=False)
class TiledProduct:
    """One product in tiles: ``serial`` is streamed element by element against the stationary ``parallel``.

    Rows of ``serial`` are output rows, rows of ``parallel`` are output columns; both are packed along the reduction.
    ``needed``: bool ``[serial.tiles, parallel.tiles]``, the output tiles that are kept; None: all. ``swapped``: the
    serial operand is the product's right one, so the output is transposed. ``weight``: the operand that is a layer's
    weight; None in a weight gradient and where neither operand is one.
    """

    serial: TiledRows
    parallel: TiledRows
    needed: NDArray[np.bool_] | None = None
    swapped: bool = False
    weight: TiledRows | None = None

    @property
    def has_topology(self) -> bool:
        """Whether the layer has absent blocks, in the output of its weight gradient or in its weight.

        Zero tiles of activations and gradients, as padding makes them, are no topology.
        """
        if self.needed is not None:
            return True
        return self.weight is not None and not bool(self.weight.tile_nonzeros.all())

    @property
    def present(self) -> Presence:
        """Tiles of the parallel operand that hold a non-zero, bool ``[parallel.tiles, k_tiles]``."""
        return self.parallel.tile_nonzeros > 0

    def __str__(self) -> str:
        serial, parallel = ("right", "left") if self.swapped else ("left", "right")
        kept = "" if self.needed is None else f", {self.needed.mean():.1%} of the output tiles kept"
        return (
            f"{self.serial.tiles} x {self.k_tiles} serial tiles ({serial} operand) against "
            f"{self.parallel.tiles} x {self.k_tiles} parallel tiles ({parallel}), "
            f"{self.present.mean():.1%} of them present{kept}"
        )

    @property
    def k_tiles(self) -> int:
        """Tiles along the reduction."""
        return self.serial.k_tiles


def tile_product(gemm: Gemm, shape: FabricShape, swapped: bool | None = None) -> TiledProduct:
    """Cut ``gemm`` into tiles and stream the operand that takes fewer cycles; ``swapped`` decides it beforehand.

    If zeros of both operands are skipped, the cycles hardly depend on the choice. Then weights always stay: full blocks
    make the best use of the read ports, and the many tokens become output rows.
    """
    left, right = TiledRows.of(gemm.left, shape.tile), TiledRows.of(gemm.right, shape.tile)
    needed = None if gemm.needed is None else tiles_any(gemm.needed, shape.tile)
    if swapped is None:
        may_swap = shape.skip != "both" or gemm.phase == "weight_grad"
        swapped = may_swap and _mac_slots(right, left, shape) < _mac_slots(left, right, shape)
    weight = right if gemm.weighted and gemm.phase != "weight_grad" else None
    if swapped:
        kept = None if needed is None else np.ascontiguousarray(needed.T)
        return TiledProduct(right, left, kept, swapped, weight)
    return TiledProduct(left, right, needed, swapped, weight)


def row_cycles(product: TiledProduct, shape: FabricShape) -> float:
    """Cycles of an SCU for a row of a serial tile against a parallel tile without zeros, on average."""
    density = product.serial.nonzeros / max(1, product.serial.rows * product.k_tiles * shape.tile)
    return max(1.0, density * shape.tile) * shape.tile / shape.lanes


def _mac_slots(serial: TiledRows, parallel: TiledRows, shape: FabricShape) -> float:
    """MAC slots if ``serial`` is streamed: its non-zeros, or all its elements where zeros are only clock-gated.

    Every streamed element meets the full width of each present tile: with zeros of both skipped this overstates both
    choices alike.
    """
    present = ((parallel.tile_nonzeros > 0) * parallel.widths[:, None]).sum(axis=0)
    if shape.skip == "gate":
        return float(present.sum()) * serial.rows * shape.tile
    return float((serial.tile_nonzeros.sum(axis=0) * present).sum())
