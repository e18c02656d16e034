"""A product's index: its parts, their sizes, and where tiles lie."""

from dataclasses import replace

import numpy as np
import pytest

from acf.errors import ArchitectureError
from acf.lowering import Gemm
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.product_index import build_index, size_bytes
from acf.lowering.tiled_product import tile_product
from tests.lowering.random_products import fabric

SHAPE = fabric(mesh_rows=1, mesh_columns=2, tile=8, link_bytes=16, accumulator_tiles=4, parallel_slots=4)


def some_product():
    blocks = np.kron(np.array([[1, 0, 1], [0, 0, 1]], dtype=bool), np.ones((8, 8), dtype=bool))
    return tile_product(Gemm(np.ones((32, 16), dtype=bool), blocks), SHAPE)


def test_blocks_stored_by_k_tile_need_no_slots() -> None:
    product = some_product()
    mapping = OutputStationaryMapping.balanced(product, SHAPE, 2)
    by_column, by_k = (build_index(product, mapping, SHAPE, direct) for direct in (False, True))
    assert by_column.words.size - by_k.words.size == by_k.descriptor.blocks == 3
    assert by_k.words[:3].tolist() == by_column.words[:3].tolist() == [0, 2, 3]
    assert by_column.parallel_address == {(0, 0): 0, (2, 0): 8, (2, 1): 16}
    assert by_k.parallel_address == {(0, 0): 0, (2, 0): 8, (2, 1): 16}


def test_a_size_byte_tells_flits_and_packing() -> None:
    # 60 values and a bitmap of 8 bytes are as long as all 64 values; 61 are longer.
    assert size_bytes(np.array([0, 1, 60, 61, 64]), SHAPE).tolist() == [0, 0x81, 0x88, 8, 8]


def test_a_size_byte_of_a_tile_in_csc_form_tells_the_same() -> None:
    # Counts take 8 bytes, a non-zero 2.5: with 48 the form is as long as all 64 values, with 49 longer.
    sizes = size_bytes(np.array([0, 1, 3, 4, 48, 49]), replace(SHAPE, tile_format="csc"))
    assert sizes.tolist() == [0, 0x81, 0x81, 0x82, 0x88, 8]


def test_groups_of_columns_cannot_be_planned_by_the_controller() -> None:
    product = some_product()
    mapping = OutputStationaryMapping.balanced(product, SHAPE, 1)
    with pytest.raises(ArchitectureError, match="shares columns among all 2 mesh columns"):
        build_index(product, mapping, SHAPE, policy="longest-first")
