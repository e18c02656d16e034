"""Cycles of the small controller when the topology has changed: balancing the work anew and writing the routing table.

A cycle per compare, add or memory access. The order of the k-steps compares all bins at once; an entry of the table is
one k-tile for one mesh row, as wide as the mesh. Every block is entered in the index by columns, and a prefix-sum unit
sums ``tile`` pointers at a time, twice. A layer without absent blocks has no topology, so nothing of it is updated.
"""

from math import ceil

from acf.lowering import BALANCERS, FabricShape
from acf.lowering.tiled_product import TiledProduct


def topology_update_cycles(shape: FabricShape, product: TiledProduct, reduces: bool) -> int:
    """All cycles of an update; ``reduces``: the reduction is spread over the mesh."""
    if not product.has_topology:
        return 0
    columns, k_tiles = (int(size) for size in product.present.shape)
    balance = BALANCERS[shape.balancer].controller_cycles
    table = table_cycles(shape, product, reduces)
    if reduces:
        return balance(_output_tiles(product), columns + product.serial.tiles, shape.mesh_columns) + table
    return balance(columns, k_tiles, shape.mesh_columns) + k_tiles**2 + table


def table_cycles(shape: FabricShape, product: TiledProduct, reduces: bool) -> int:
    """Those of `topology_update_cycles` that write the routing table: spent even if the balance is kept."""
    if not product.has_topology:
        return 0
    if reduces:
        return _output_tiles(product)
    columns, k_tiles = (int(size) for size in product.present.shape)
    index = int(product.present.sum()) + ceil(columns / shape.tile) + ceil(k_tiles / shape.tile)
    return index + k_tiles * shape.mesh_rows


def _output_tiles(product: TiledProduct) -> int:
    """Tiles of the output that are needed."""
    return product.parallel.tiles * product.serial.tiles if product.needed is None else int(product.needed.sum())
