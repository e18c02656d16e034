"""The values of the simulated fabric are those that the gates must give, bit by bit."""

import numpy as np
import pytest
import torch

from acf.lowering import Gemm
from acf.lowering.pipeline import lower_stages
from acf.rtl.design.arithmetic.model import bf16_values
from acf.rtl.design.fabric.encoding import encode
from acf.rtl.design.fabric.shapes import SMALL_SHAPE
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.verify.lockstep.products import Product, random_product
from acf.rtl.verify.lockstep.reference_output import ordered_output
from acf.runtime.arithmetic import THREADED_PRODUCTS, fabric_values, flushed, in_parallel, ordered_product
from acf.runtime.arithmetic_kernels import add_tiles_flushed
from acf.runtime.implicit_matrix import ImplicitMatrix
from acf.runtime.numbers import round_to_bf16, to_bf16_bits

SIZES = FabricSizes(SMALL_SHAPE, command_depth=1 << 12, memory_flits=1 << 16)
SPECIAL = np.array([0x0000, 0x8000, 0x0001, 0x0080, 0x8080, 0x1A80, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0], dtype=np.uint16)
"""Zeros, a subnormal, the least normal numbers, 2**-75 (the square is subnormal), the greatest, infinities, NaN."""


def both_outputs(product: Product) -> tuple[np.ndarray, np.ndarray]:
    """Bits by `fabric_values` and by the reference of the gates, under the same mapping."""
    a, b = (flushed(bf16_values(bits)) for bits in (product.a, product.b))
    stages = lower_stages(Gemm(a != 0, b != 0, product.needed), SMALL_SHAPE)
    left, right = to_bf16_bits(a), to_bf16_bits(b)
    serial, parallel = (right.T, left.T) if stages.program.swapped else (left, right)
    expected = ordered_output(encode(stages.program, SIZES, serial, parallel))
    operands = ImplicitMatrix.of(a), ImplicitMatrix.of(b)
    return fabric_values(*operands, stages.product, stages.mapping, SMALL_SHAPE).view(np.uint32), expected


@pytest.mark.parametrize("seed", range(12))
def test_values_are_those_of_the_gates_whatever_the_mapping(seed: int) -> None:
    product = random_product(seed, tile=8, most=4)
    found, expected = both_outputs(product)
    if product.needed is not None:  # outputs that are not needed may be computed with the tile they are in
        found, expected = found[product.needed], expected[product.needed]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("seed", range(4))
def test_infinities_subnormals_and_nan_follow_the_rules_of_the_gates(seed: int) -> None:
    plain, rng = random_product(seed, tile=8, most=2), np.random.default_rng(seed)
    a, b = (
        np.where(rng.random(bits.shape) < 0.2, rng.choice(SPECIAL, bits.shape), bits).astype(np.uint16)
        for bits in (plain.a, plain.b)
    )
    found, expected = both_outputs(Product(a, b))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("density", [0.1, 1.0])
def test_every_loop_gives_the_same_bits(density: float) -> None:
    rng = np.random.default_rng(3)
    left = round_to_bf16(rng.standard_normal((50, 70)))
    right = round_to_bf16(rng.standard_normal((70, 37)) * np.repeat(rng.random((70, 1)) < density, 37, axis=1))
    order = rng.permutation(70)
    expected = np.zeros((50, 37), dtype=np.float32)
    for k in order:
        expected += left[:, k : k + 1] * right[k]
    np.testing.assert_array_equal(ordered_product(left, right, order, tile=1), expected)
    flushing, everywhere = np.zeros_like(expected), np.ones((70, 70), dtype=bool)
    tiles = everywhere[:50], everywhere[:, :37], everywhere[:50, :37]
    add_tiles_flushed(left.reshape(-1), np.arange(50) * 70, np.arange(70), right, 1, order, *tiles, flushing)
    np.testing.assert_array_equal(flushing, expected)


def test_threads_share_the_rows_of_a_large_product(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    left, right = (round_to_bf16(rng.standard_normal((100, 100))) for _ in range(2))
    expected = ordered_product(left, right)
    monkeypatch.setattr("acf.runtime.arithmetic.THREADED_PRODUCTS", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    np.testing.assert_array_equal(ordered_product(left, right), expected)


def test_a_sum_depends_on_the_order_that_is_given() -> None:
    left, right = np.array([[1.0, 2.0**25, -(2.0**25)]], dtype=np.float32), np.ones((3, 1), dtype=np.float32)
    assert ordered_product(left, right).item() == 0.0
    assert ordered_product(left, right, np.array([1, 2, 0]), tile=1).item() == 1.0


@pytest.mark.parametrize("threads", [1, 2])
def test_two_calls_in_parallel_give_both_results_or_the_error(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert in_parallel(lambda: 1, lambda: "two", THREADED_PRODUCTS) == (1, "two")
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda: 1, lambda: 1 // 0, THREADED_PRODUCTS)
