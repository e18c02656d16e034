"""Cycles by product when the topology has changed: balancing the work anew, and writing what the topology unit writes.

Balancing takes a cycle per compare, add or memory access of a small controller; the order of the k-steps compares all
bins at once. The gates have no such unit: there, owners and orders are those of the dense layer. What is written is
counted as `TopologyUnit` writes it: of forward product and input gradient the index, of the weight gradient the mask
or, if it is split-K, the list of its output tiles, and of every moved block the optimizer's descriptor and zeros. The
list of a split-K forward product or input gradient, which the unit in gates does not write, is counted as its words. A
layer without absent blocks has no topology, so nothing of it is updated.
"""

from acf.lowering import BALANCERS, FabricShape
from acf.lowering.tiled_product import TiledProduct
from acf.sim.fabric.topology_unit import TopologyUnit, moved_blocks, updates_of


def topology_update_cycles(shape: FabricShape, product: TiledProduct, split: int) -> int:
    """All cycles of an update but those of selection.

    ``split``: groups of mesh columns over which the reduction of a split-K product is spread; 0: output-stationary.
    """
    if not product.has_topology:
        return 0
    columns, k_tiles = (int(size) for size in product.present.shape)
    balance = BALANCERS[shape.balancer].controller_cycles
    table = table_cycles(shape, product, split)
    if split:
        return balance(_output_tiles(product), columns + product.serial.tiles, shape.mesh_columns) + table
    return balance(columns, k_tiles, shape.mesh_columns) + k_tiles**2 + table


def table_cycles(shape: FabricShape, product: TiledProduct, split: int) -> int:
    """Those of `topology_update_cycles` that write the new topology: spent even if the balance is kept."""
    if not product.has_topology:
        return 0
    unit = TopologyUnit.of(shape)
    if product.needed is not None:
        moves = moved_blocks(product.needed)
        round_tiles = shape.mesh_columns // max(1, split) * shape.accumulator_tiles
        kept = unit.list_cycles(product.needed, round_tiles) if split else unit.mask_cycles(product.needed)
        return max(1, updates_of(moves)) * kept + unit.move_cycles(moves)
    assert product.weight is not None  # `has_topology`
    present = (product.weight.tile_nonzeros > 0).T
    outputs = unit.words_cycles(2 * _output_tiles(product)) if split else 0
    return max(1, updates_of(moved_blocks(present))) * unit.index_cycles(present) + outputs


def _output_tiles(product: TiledProduct) -> int:
    """Tiles of the output that are needed."""
    return product.parallel.tiles * product.serial.tiles if product.needed is None else int(product.needed.sum())
