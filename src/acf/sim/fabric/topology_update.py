"""Cycles by product when the topology has changed: balancing the work anew, and writing what the topology unit writes.

Balancing takes a cycle per compare, add or memory access of a small controller; the order of the k-steps compares all
bins at once. The gates have no such unit: there, owners and orders are those of the dense layer. What is written is
counted as `TopologyUnit` writes it: of forward product and input gradient the index, of the weight gradient the mask,
and of every moved block the optimizer's descriptor and zeros. The list of output tiles of a split-K product, which the
unit in gates does not write, is counted as its words. A layer without absent blocks has no topology, so nothing of it
is updated.
"""

from acf.lowering import BALANCERS, FabricShape
from acf.lowering.tiled_product import TiledProduct
from acf.sim.fabric.topology_unit import TopologyUnit, moved_blocks, updates_of


def topology_update_cycles(shape: FabricShape, product: TiledProduct, reduces: bool) -> int:
    """All cycles of an update but those of selection; ``reduces``: the reduction is spread over the mesh."""
    if not product.has_topology:
        return 0
    columns, k_tiles = (int(size) for size in product.present.shape)
    balance = BALANCERS[shape.balancer].controller_cycles
    table = table_cycles(shape, product, reduces)
    if reduces:
        return balance(_output_tiles(product), columns + product.serial.tiles, shape.mesh_columns) + table
    return balance(columns, k_tiles, shape.mesh_columns) + k_tiles**2 + table


def table_cycles(shape: FabricShape, product: TiledProduct, reduces: bool) -> int:
    """Those of `topology_update_cycles` that write the new topology: spent even if the balance is kept."""
    if not product.has_topology:
        return 0
    unit = TopologyUnit.of(shape)
    outputs = unit.words_cycles(2 * _output_tiles(product)) if reduces else 0
    if product.needed is not None:
        moves = moved_blocks(product.needed)
        masks = (updates_of(moves) - 1) * unit.finish_cycles(product.needed, 0) if moves else 0
        return masks + unit.finish_cycles(product.needed, moves) + outputs
    assert product.weight is not None  # `has_topology`
    present = (product.weight.tile_nonzeros > 0).T
    return max(1, updates_of(moved_blocks(present))) * unit.index_cycles(present) + outputs


def _output_tiles(product: TiledProduct) -> int:
    """Tiles of the output that are needed."""
    return product.parallel.tiles * product.serial.tiles if product.needed is None else int(product.needed.sum())
