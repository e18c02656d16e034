"""A product for a device that walks its index: descriptor, index, operands stored once, and the program to compare."""

from dataclasses import dataclass, replace

import numpy as np

from acf.lowering import PARALLEL, SERIAL, FabricShape, Program
from acf.lowering.mapping import Mapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.output_stationary_packets import deal_rows
from acf.lowering.packing import lower_product
from acf.lowering.product_index import ProductIndex, build_index, flits_of, size_bytes
from acf.lowering.split_k import SplitKMapping
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
    """Index and encode a product over bf16 bits ``operands``: serial [rows, k], parallel [k, n]."""
    index = build_index(product, mapping, sizes.shape, direct, policy)
    program = lower_product(product, sizes.shape, mapping)
    storage = OperandStorage(
        {(SERIAL, *key): at for key, at in index.serial_address.items()}
        | {(PARALLEL, *key): at for key, at in index.parallel_address.items()},
        bank_tiles(product, mapping, sizes.shape, program),
    )
    encoded = encode(program, sizes, *operands, storage)
    if not program.reduces:
        return IndexedProgram(index, encoded)
    serial_flits = np.asarray(flits_of(size_bytes(product.serial.tile_nonzeros, sizes.shape))).sum()
    return IndexedProgram(index, _with_block_addresses(encoded, index, int(serial_flits)))


def _with_block_addresses(encoded: EncodedProgram, index: ProductIndex, serial_flits: int) -> EncodedProgram:
    """Blocks that go along the mesh rows at their place in the stationary operand, which no row stores again."""
    shape, rows = encoded.sizes.shape, encoded.program.rows
    field = encoded.sizes.command(shape.mesh_columns, serial=True)["address"]
    commands, flits = [list(line) for line in encoded.commands], list(encoded.flits)
    for line in range(shape.mesh_rows):
        flits[line] = flits[line][:serial_flits]
        for place, packet in enumerate(range(int(rows.first[line]), int(rows.first[line + 1]))):
            if rows.kind[packet] == PARALLEL:
                address = index.parallel_address[int(rows.row_tile[packet]), int(rows.k_tile[packet])]
                without = commands[line][place] & ~(((1 << field.width) - 1) << field.offset)
                commands[line][place] = without | address << field.offset
    return replace(encoded, commands=commands, flits=flits)


BankTiles = dict[tuple[int, int], list[tuple[int, int]]]
"""(serial tile, output column) of every tile of every bank, by (cluster, round): row tile by row tile."""


def bank_tiles(product: TiledProduct, mapping: Mapping, shape: FabricShape, program: Program) -> BankTiles:
    """The tiles of every bank, whether or not the product has a non-zero there."""
    if isinstance(mapping, SplitKMapping):
        return _split_k_tiles(mapping, shape)
    return _output_stationary_tiles(product, mapping, shape, program)


def _split_k_tiles(mapping: SplitKMapping, shape: FabricShape) -> BankTiles:
    """Clusters whose partial sums are added have the same tiles."""
    outputs = zip(mapping.output_rows.tolist(), mapping.output_columns.tolist(), strict=True)
    owners = zip(mapping.column_of.tolist(), mapping.round_of.tolist(), strict=True)
    found: BankTiles = {}
    for output, owner in zip(outputs, owners, strict=True):
        found.setdefault(owner, []).append(output)
    group_columns = shape.mesh_columns // mapping.split
    return {
        (cluster, number): sorted(found.get((cluster % shape.mesh_columns % group_columns, number), []))
        for cluster in range(shape.clusters)
        for number in range(mapping.rounds)
    }


def _output_stationary_tiles(
    product: TiledProduct, mapping: OutputStationaryMapping, shape: FabricShape, program: Program
) -> BankTiles:
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
