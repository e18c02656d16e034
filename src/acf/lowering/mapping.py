"""Stage 3: the mapping of a tiled product onto the mesh, output-stationary or split-K, by estimated cycles.

Where index controllers would take longer for a product than its SCUs, both count: `FabricShape.control_cycles`.
"""

from collections.abc import Iterator

import numpy as np

from acf.errors import ArchitectureError
from acf.lowering.balance import BALANCERS
from acf.lowering.fabric_shape import FabricShape
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import TiledProduct, row_cycles
from acf.lowering.tiles import TiledRows

Mapping = OutputStationaryMapping | SplitKMapping

ENOUGH_ROW_TILES = 4  # per cluster: with that many, splitting the reduction gains nothing
NARROWER_GROUP_GAIN = 0.97  # narrower groups must save 3 %, since fewer clusters share a packet
SPLIT_K_GAIN = 0.95  # split-K must save 5 %, since it sends and adds partial sums
CONTROL_GAIN = 0.95  # a mapping that keeps controllers for less time must save 5 %, since work is only estimated


def choose_mapping(product: TiledProduct, shape: FabricShape) -> Mapping:
    """The mapping with the fewest estimated cycles; a static fabric chooses as if every block were present."""
    if shape.balancer not in BALANCERS:
        raise ArchitectureError(
            f"balancer {shape.balancer!r} is not one of {', '.join(BALANCERS)}; use one of these names"
        )
    if shape.interconnect != "static":
        return _walkable_mapping(_fastest_mapping(product, shape), product, shape)
    full = np.full_like(product.parallel.patterns, np.iinfo(product.parallel.patterns.dtype).max)
    dense = TiledProduct(product.serial, TiledRows(full, product.parallel.tile))
    return keep_mapping(_fastest_mapping(dense, shape), dense, product, shape)


def keep_mapping(mapping: Mapping, before: TiledProduct, after: TiledProduct, shape: FabricShape) -> Mapping:
    """The ``mapping`` of a product ``before`` blocks moved, carried over to the product ``after``: no rebalancing."""
    return mapping.kept_for(before, after, shape)


def _walkable_mapping(fastest: Mapping, product: TiledProduct, shape: FabricShape) -> Mapping:
    """``fastest``, unless its index takes longer than its work and another mapping takes less for both."""
    row = row_cycles(product, shape)
    work_cycles, control_cycles = fastest.estimated_cycles * row, shape.control_cycles(product, fastest)
    if control_cycles <= work_cycles:
        return fastest
    best, best_cycles = fastest, CONTROL_GAIN * control_cycles
    for mapping in _candidates(product, shape):
        cycles = mapping.estimated_cycles * row
        cycles = max(cycles, shape.control_cycles(product, mapping)) if cycles < best_cycles else cycles
        if cycles < best_cycles:
            best, best_cycles = mapping, cycles
    return best


def _candidates(product: TiledProduct, shape: FabricShape) -> Iterator[Mapping]:
    """Both mappings for groups of every width."""
    for columns in _group_widths(shape):
        yield OutputStationaryMapping.balanced(product, shape, columns)
        yield SplitKMapping.balanced(product, shape, shape.mesh_columns // columns)


def _group_widths(shape: FabricShape) -> list[int]:
    """Widths that divide the mesh columns, the widest first."""
    return [count for count in range(shape.mesh_columns, 0, -1) if shape.mesh_columns % count == 0]


def _fastest_mapping(product: TiledProduct, shape: FabricShape) -> Mapping:
    divisors = _group_widths(shape)
    best, *others = (OutputStationaryMapping.balanced(product, shape, columns) for columns in divisors)
    for mapping in others:
        if mapping.estimated_cycles < NARROWER_GROUP_GAIN * best.estimated_cycles:
            best = mapping
    if product.needed is None and product.serial.tiles >= ENOUGH_ROW_TILES * shape.clusters:
        return best
    splits = [SplitKMapping.balanced(product, shape, shape.mesh_columns // columns) for columns in divisors]
    split_k = min(splits, key=lambda mapping: mapping.estimated_cycles)
    return split_k if split_k.estimated_cycles < SPLIT_K_GAIN * best.estimated_cycles else best
