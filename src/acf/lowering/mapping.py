"""Stage 3: the mapping of a tiled product onto the mesh, output-stationary or split-K, by estimated cycles."""

import numpy as np

from acf.errors import ArchitectureError
from acf.lowering.balance import BALANCERS
from acf.lowering.fabric_shape import FabricShape
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import TiledProduct
from acf.lowering.tiles import TiledRows

Mapping = OutputStationaryMapping | SplitKMapping

ENOUGH_ROW_TILES = 4  # per cluster: with that many, splitting the reduction gains nothing
NARROWER_GROUP_GAIN = 0.97  # narrower groups must save 3 %, since fewer clusters share a packet
SPLIT_K_GAIN = 0.95  # split-K must save 5 %, since it sends and adds partial sums


def choose_mapping(product: TiledProduct, shape: FabricShape) -> Mapping:
    """The mapping with the fewest estimated cycles; a static fabric chooses as if every block were present."""
    if shape.balancer not in BALANCERS:
        raise ArchitectureError(
            f"balancer {shape.balancer!r} is not one of {', '.join(BALANCERS)}; use one of these names"
        )
    if shape.interconnect != "static":
        return _fastest_mapping(product, shape)
    full = np.full_like(product.parallel.patterns, np.iinfo(product.parallel.patterns.dtype).max)
    dense = TiledProduct(product.serial, TiledRows(full, product.parallel.tile))
    return keep_mapping(_fastest_mapping(dense, shape), dense, product, shape)


def keep_mapping(mapping: Mapping, before: TiledProduct, after: TiledProduct, shape: FabricShape) -> Mapping:
    """The ``mapping`` of a product ``before`` blocks moved, carried over to the product ``after``: no rebalancing."""
    return mapping.kept_for(before, after, shape)


def _fastest_mapping(product: TiledProduct, shape: FabricShape) -> Mapping:
    divisors = [count for count in range(shape.mesh_columns, 0, -1) if shape.mesh_columns % count == 0]
    best, *others = (OutputStationaryMapping.balanced(product, shape, columns) for columns in divisors)
    for mapping in others:
        if mapping.estimated_cycles < NARROWER_GROUP_GAIN * best.estimated_cycles:
            best = mapping
    if product.needed is None and product.serial.tiles >= ENOUGH_ROW_TILES * shape.clusters:
        return best
    splits = [SplitKMapping.balanced(product, shape, shape.mesh_columns // columns) for columns in divisors]
    split_k = min(splits, key=lambda mapping: mapping.estimated_cycles)
    return split_k if split_k.estimated_cycles < SPLIT_K_GAIN * best.estimated_cycles else best
