"""Tensors in the fabric's memory."""

import numpy as np

import acf.sim
from acf.trace import BitTensor

SPEC = acf.sim.spec("acf-512")


def test_weights_are_stored_as_block_csr_with_both_orders() -> None:
    weight = np.zeros((64, 96), dtype=bool)
    weight[:16, 16:32] = True
    weight[32:48, :16] = True
    offsets, blocks = 4 + 1 + 6 + 1, 2
    assert SPEC.stored_bytes(BitTensor.from_array(weight), "weight") == 2 * 512 + 4 * (offsets + 2 * blocks)


def test_absent_blocks_of_a_weight_take_no_bytes() -> None:
    dense, sparse = np.ones((1024, 1024), dtype=bool), np.zeros((1024, 1024), dtype=bool)
    sparse[:96] = True
    full, few = (SPEC.stored_bytes(BitTensor.from_array(each), "weight") for each in (dense, sparse))
    assert few < 0.1 * full
    assert 1024 * 1024 * 2 < full < 1.02 * 1024 * 1024 * 2


def test_activations_carry_the_sizes_of_their_tiles() -> None:
    bits = BitTensor.from_array(np.ones((160, 160), dtype=bool))
    assert SPEC.stored_bytes(bits, "activation") == 160 * 160 * 2 + 100 + 8 * 25


def test_an_empty_weight_takes_no_bytes() -> None:
    assert SPEC.stored_bytes(BitTensor.from_array(np.ones((0, 16), dtype=bool)), "weight") == 0
