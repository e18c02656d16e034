"""Products from a descriptor over tiles that lie where a step has put them: the device's commands, and refusals."""

from dataclasses import replace

import numpy as np
import pytest

from acf.errors import RtlError
from acf.lowering.descriptor import DESCRIPTOR_WORDS
from acf.rtl.design.axi.spec import PAGE_BYTES
from acf.rtl.design.index.controller_cycles import commands_of
from acf.rtl.design.index.index_controller import IndexSizes
from acf.rtl.device.host.placed_index import index_dense, lay_out_walked
from acf.rtl.device.host.placed_product import PlacedMatrix
from acf.rtl.device.host.shared_tiles import command_layout
from tests.rtl.device.programs import ONE_SCU, SIZES, VECTOR_AXI

TILE = SIZES.shape.tile
ROWS, INPUTS, OUTPUTS = 8, 4, 4
KEPT = np.random.default_rng(0).random((INPUTS, OUTPUTS)) < 0.5
TILES = np.ones((TILE, TILE), dtype=bool)
X = PlacedMatrix({(row, k): 512 + TILE * (row * INPUTS + k) for row in range(ROWS) for k in range(INPUTS)})
DZ = PlacedMatrix({(row, n): 1024 + TILE * (n * ROWS + row) for row in range(ROWS) for n in range(OUTPUTS)})
WEIGHT_GRADIENT = index_dense(
    np.ones((INPUTS * TILE, ROWS * TILE), dtype=bool),
    np.ones((ROWS * TILE, OUTPUTS * TILE), dtype=bool),
    np.kron(KEPT, TILES),
    SIZES,
)
ONE_COLUMN = index_dense(np.kron(np.ones((4, 1), dtype=bool), TILES), TILES, None, ONE_SCU)


def test_commands_of_a_masked_product_read_the_tiles_where_they_lie() -> None:
    image = lay_out_walked(WEIGHT_GRADIENT, X.T, DZ, VECTOR_AXI, 1 << 16)
    words = np.frombuffer(image.segments[0].content, dtype="<u4")
    memory = np.concatenate((words[:DESCRIPTOR_WORDS], words[PAGE_BYTES // 4 :]))
    made = commands_of(memory, IndexSizes(SIZES))
    assert [len(line) for line in made] == [len(line) for line in WEIGHT_GRADIENT.encoded.commands]
    program, rows = WEIGHT_GRADIENT.encoded.program, SIZES.shape.mesh_rows
    for line, commands in enumerate(made):
        stream, place = (program.rows, line) if line < rows else (program.columns, line - rows)
        for packet, word in enumerate(commands, start=int(stream.first[place])):
            tile, k_tile = int(stream.row_tile[packet]), int(stream.k_tile[packet])
            fields = command_layout(SIZES, line)
            address, turned = (
                word >> fields[name].offset & (1 << fields[name].width) - 1 for name in ("address", "transposed")
            )
            row_tile = int(program.tile_first_row[tile]) // TILE
            expected = X.tiles[k_tile, row_tile] if line < rows else DZ.tiles[k_tile, tile] - 1024
            assert (address, turned) == (expected, int(line < rows))


def test_operands_that_an_index_cannot_describe_are_refused() -> None:
    wrong = PlacedMatrix(X.T.tiles | {(0, 0): 5000})
    with pytest.raises(RtlError, match="place row tiles equally far apart"):
        lay_out_walked(ONE_COLUMN, PlacedMatrix({(0, 0): 0, (1, 0): 8, (2, 0): 16, (3, 0): 32}), DZ, VECTOR_AXI, 0)
    with pytest.raises(RtlError, match="flit 5000 is beyond the 4096 that a command reaches"):
        lay_out_walked(WEIGHT_GRADIENT, wrong, DZ, VECTOR_AXI, 1 << 16)
    apart = PlacedMatrix(DZ.tiles | {(0, 0): 0})
    with pytest.raises(RtlError, match="do not follow each other as the index has them"):
        lay_out_walked(WEIGHT_GRADIENT, X.T, apart, VECTOR_AXI, 1 << 16)
    with pytest.raises(RtlError, match="beyond the 16 bits of the bus"):
        lay_out_walked(WEIGHT_GRADIENT, X.T, DZ, replace(VECTOR_AXI, address_bits=16), 1 << 16)
