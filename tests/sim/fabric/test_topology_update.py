"""When a topology update costs the controller cycles."""

import numpy as np
import pytest

from acf.lowering import Gemm
from acf.lowering.tiled_product import tile_product
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.topology_update import table_cycles, topology_update_cycles
from acf.sim.registry import spec_of_kind

WIDE = spec_of_kind(AdaptiveFabric, "acf-512-wide")

PADDED = np.kron(np.eye(4, dtype=bool), np.ones((16, 16), dtype=bool))
"""Activations of which whole tiles are zero."""


@pytest.mark.parametrize("phase", ["forward", "input_grad", "weight_grad"])
@pytest.mark.parametrize("swapped", [False, True])
def test_zero_tiles_of_activations_are_no_topology(phase: str, swapped: bool) -> None:
    product = tile_product(Gemm(PADDED, np.ones((64, 64), dtype=bool), phase=phase), WIDE, swapped)
    assert topology_update_cycles(WIDE, product, split=0) == table_cycles(WIDE, product, split=0) == 0


@pytest.mark.parametrize("swapped", [False, True])
def test_absent_blocks_of_a_weight_are_a_topology_whichever_operand_is_streamed(swapped: bool) -> None:
    product = tile_product(Gemm(np.ones((64, 64), dtype=bool), PADDED), WIDE, swapped)
    assert topology_update_cycles(WIDE, product, split=0) > table_cycles(WIDE, product, split=0) > 0


def test_absent_blocks_of_a_weight_gradient_are_a_topology() -> None:
    ones = np.ones((64, 64), dtype=bool)
    product = tile_product(Gemm(ones, ones, needed=PADDED, phase="weight_grad"), WIDE)
    assert topology_update_cycles(WIDE, product, split=1) > 0


def test_listing_the_output_tiles_of_a_split_k_weight_gradient_takes_longer_than_its_mask() -> None:
    ones = np.ones((64, 64), dtype=bool)
    product = tile_product(Gemm(ones, ones, needed=PADDED, phase="weight_grad"), WIDE)
    assert table_cycles(WIDE, product, split=1) > table_cycles(WIDE, product, split=0)


def test_products_of_attention_have_no_topology() -> None:
    product = tile_product(Gemm(PADDED, PADDED, weighted=False), WIDE)
    assert topology_update_cycles(WIDE, product, split=0) == 0
