"""Stage 4: the packets of a tiled product under its mapping.

A tile without a non-zero is never sent, and a tile is multicast once to all clusters of a line that need it.
"""

from acf.lowering.fabric_shape import FabricShape
from acf.lowering.mapping import Mapping, choose_mapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.output_stationary_packets import output_stationary_program
from acf.lowering.program import Program
from acf.lowering.split_k_packets import split_k_program
from acf.lowering.tiled_product import TiledProduct


def lower_product(product: TiledProduct, shape: FabricShape, mapping: Mapping | None = None) -> Program:
    """The program of a tiled product, under the fastest mapping or under one that is given."""
    mapping = mapping or choose_mapping(product, shape)
    if isinstance(mapping, OutputStationaryMapping):
        return output_stationary_program(product, mapping, shape)
    return split_k_program(product, mapping, shape)
