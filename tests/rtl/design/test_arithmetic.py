"""The arithmetic: its integer model against NumPy's floats, and the gates against the model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acf.rtl.design.arithmetic.add import Fp32Adder
from acf.rtl.design.arithmetic.model import add_fp32, bf16_bits, bf16_values, is_effectual, multiply_bf16
from acf.rtl.design.arithmetic.multiply import Bf16Multiplier

# zeros, subnormals, least normal, around 1, ties, greatest, Inf, NaN; both signs
EDGES_32 = [0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x33800000, 0x33800001, 0x34000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001]
EDGES_32 += [0x4B7FFFFF, 0x4B800000, 0x7F7FFFFF, 0x7F000000, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF]
EDGES_32 += [edge | 0x80000000 for edge in EDGES_32]
EDGES_16 = sorted({edge >> 16 for edge in EDGES_32} | {0x0040, 0x00FF, 0x3FFF, 0x1FFF, 0x2000, 0x5F80, 0x6000})


def pairs_of_floats(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of edges, and random pairs of which most have exponents close to each other."""
    generator = np.random.default_rng(seed)
    edges = np.array(np.meshgrid(EDGES_32, EDGES_32), dtype=np.uint32).reshape(2, -1)
    x, y = generator.integers(0, 1 << 32, (2, count), dtype=np.uint32)
    shift = (generator.integers(-28, 29, count) << 23).astype(np.uint32)
    close = ((x & np.uint32(0x7F800000)) + shift) ^ (y & np.uint32(0x807FFFFF))
    y = np.where(generator.random(count) < 0.8, close, y).astype(np.uint32)
    return np.concatenate((edges[0], x)), np.concatenate((edges[1], y))


def flushed(values: np.ndarray) -> np.ndarray:
    """Float32 with subnormals as zeros of their sign and one kind of NaN."""
    bits = values.astype(np.float32).view(np.uint32).copy()
    bits[(bits >> 23) & 0xFF == 0] &= 0x80000000
    bits[np.isnan(values)] = 0x7FC00000
    return bits.view(np.float32)


def sums_by_numpy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return flushed(flushed(x.view(np.float32)) + flushed(y.view(np.float32))).view(np.uint32)


def test_the_model_of_the_adder_rounds_as_ieee_floats_do() -> None:
    x, y = pairs_of_floats(50_000)
    np.testing.assert_array_equal(add_fp32(x, y), sums_by_numpy(x, y))


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_the_model_of_the_adder_is_right_for_any_pair(x: int, y: int) -> None:
    pair = np.array([x], dtype=np.uint32), np.array([y], dtype=np.uint32)
    assert add_fp32(x, y) == sums_by_numpy(*pair)[0] == add_fp32(y, x)


@given(st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1))
def test_the_model_of_the_multiplier_is_exact_for_any_pair(a: int, b: int) -> None:
    with np.errstate(all="ignore"):
        product = flushed(bf16_values([a])).astype(float) * flushed(bf16_values([b])).astype(float)
        expected = flushed(product.astype(np.float32))  # a double holds the product whole
    assert multiply_bf16(a, b) == expected.view(np.uint32)[0]


@pytest.mark.parametrize("products", [False, True])
def test_the_adder_in_gates_equals_its_model(simulate, products: bool) -> None:
    simulation = simulate(Fp32Adder(products=products))
    x, y = pairs_of_floats(20_000 if simulation.backend == "verilator" else 200)
    x, y = (x, y) if simulation.backend == "verilator" else (x[::5], y[::5])
    np.testing.assert_array_equal(simulation.run({"x": x, "y": y})["total"], add_fp32(x, y))


@pytest.mark.parametrize("products", [False, True])
def test_the_adder_in_gates_rounds_as_its_model_at_every_distance_of_exponents(simulate, products: bool) -> None:
    fractions = np.array([0, 1, 2, 3, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFE, 0x7FFFFF])
    one, other, distance, sign = np.meshgrid(fractions, fractions, np.arange(30), [0, 1 << 31], indexing="ij")
    x, y = (100 << 23 | one).ravel(), (sign | (100 - distance) << 23 | other).ravel()
    simulation = simulate(Fp32Adder(products=products))
    step = 1 if simulation.backend == "verilator" else 23
    np.testing.assert_array_equal(
        simulation.run({"x": x[::step], "y": y[::step]})["total"], add_fp32(x[::step], y[::step])
    )


def test_the_multiplier_in_gates_equals_its_model(simulate) -> None:
    simulation = simulate(Bf16Multiplier())
    a, b = np.array(np.meshgrid(EDGES_16, EDGES_16)).reshape(2, -1)
    if simulation.backend == "verilator":
        a, b = np.concatenate(([a, b], np.random.default_rng(0).integers(0, 1 << 16, (2, 20_000))), axis=1)
    np.testing.assert_array_equal(simulation.run({"a": a, "b": b})["product"], multiply_bf16(a, b))


def test_zero_times_infinity_is_nan_in_the_multiplier_and_not_effectual_in_a_mac() -> None:
    assert multiply_bf16(0x0000, 0x7F80) == multiply_bf16(0x8001, 0xFF80) == 0x7FC00000
    assert not is_effectual(0x0000, 0x7F80)
    assert not is_effectual(0x7FC0, 0x0001)


def test_numbers_become_bfloat16_by_rounding_to_even() -> None:
    bits = bf16_bits([1.0, 1.00390625, 1.01171875, -0.0, np.inf, np.nan])
    assert [hex(each) for each in bits] == ["0x3f80", "0x3f80", "0x3f82", "0x8000", "0x7f80", "0x7fc0"]
