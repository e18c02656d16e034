"""A product for a device that walks its index: descriptor, index, operands stored once, and the program to compare."""

from dataclasses import dataclass

import numpy as np

from acf.errors import RtlError
from acf.lowering import PARALLEL, SERIAL, FabricShape, Program
from acf.lowering.mapping import Mapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.output_stationary_packets import deal_rows
from acf.lowering.packing import lower_product
from acf.lowering.product_index import ProductIndex, build_index
from acf.lowering.tiled_product import TiledProduct
from acf.rtl.design.fabric.encoding import Bits, EncodedProgram, OperandStorage, encode
from acf.rtl.design.fabric.sizes import FabricSizes


@dataclass(frozen=True, eq=False)
class IndexedProgram:
    """``index`` is what the device gets; ``encoded`` has the commands that it must make of it, and the operands."""

    index: ProductIndex
    encoded: EncodedProgram


def index_program(
    product: TiledProduct,
    mapping: Mapping,
    sizes: FabricSizes,
    operands: tuple[Bits, Bits],
    policy: str = "stored",
    direct: bool = False,
) -> IndexedProgram:
    """Index and encode an output-stationary product over bf16 bits ``operands``: serial [rows, k], parallel [k, n]."""
    if not isinstance(mapping, OutputStationaryMapping):
        raise RtlError(
            "a controller in gates walks output-stationary products, and this mapping is split-K; map it with "
            "OutputStationaryMapping.balanced, or send commands"
        )
    index = build_index(product, mapping, sizes.shape, direct, policy)
    program = lower_product(product, sizes.shape, mapping)
    storage = OperandStorage(
        {(SERIAL, *key): at for key, at in index.serial_address.items()}
        | {(PARALLEL, *key): at for key, at in index.parallel_address.items()},
        bank_tiles(product, mapping, sizes.shape, program),
    )
    return IndexedProgram(index, encode(program, sizes, *operands, storage))


def bank_tiles(
    product: TiledProduct, mapping: OutputStationaryMapping, shape: FabricShape, program: Program
) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """(serial tile, output column) of every tile of every bank, by (cluster, round): row tile by row tile."""
    groups = shape.mesh_columns // mapping.group_columns
    tiles = deal_rows(product, mapping.row_parts(shape), shape)
    row_rounds = program.rounds // mapping.column_rounds
    banks = {}
    for number in range(program.rounds):
        column_round, row_round = divmod(number, row_rounds)
        for cluster in range(shape.clusters):
            row, place = divmod(cluster, shape.mesh_columns)
            group, column = divmod(place, mapping.group_columns)
            first, end = tiles.part_first[row * groups + group : row * groups + group + 2].tolist()
            begin = first + row_round * mapping.row_tiles_per_round
            batch = range(begin, min(end, begin + mapping.row_tiles_per_round))
            mine = np.flatnonzero((mapping.round_of == column_round) & (mapping.column_of == column)).tolist()
            banks[cluster, number] = [(tile, output) for tile in batch for output in mine]
    return banks
