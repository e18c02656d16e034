"""Passes in which a lane has a row: every bit beside the model, and softmax, loss, norms and GELU as they should be."""

from collections.abc import Callable

import numpy as np
import pytest

from acf.errors import RtlError
from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.vector import row_programs
from acf.rtl.design.vector.model import VectorInputs, VectorOutputs, run_pass
from acf.rtl.design.vector.operation import CONSTANTS, Operation
from acf.rtl.design.vector.row_programs import ROW_PROGRAMS, STEPS_BETWEEN, check_row_programs
from acf.rtl.design.vector.unit import VectorSpec, VectorUnit
from acf.rtl.tools.simulation import Simulation
from acf.sim.vector import PASSES
from tests.rtl.design.vector.passes import LANES, assert_equal, inputs_of, run_unit

LOG2_E = np.log2(np.e)
ROWS, VALUES = 16, 40
ROUNDING = 2.0**-8
"""By how much a number changes at the most, relative, when it is rounded to bf16."""
CLOSE = 1.1 * ROUNDING


@pytest.fixture(scope="module")
def unit() -> Simulation:
    return Simulation(VectorUnit(VectorSpec(LANES, "transformer")), backend="pysim")


@pytest.mark.parametrize("key", [*ROW_PROGRAMS, *STEPS_BETWEEN], ids=lambda key: "-".join(map(str, key)))
def test_a_pass_over_rows_has_the_bits_of_the_model(unit: Simulation, key: tuple[str, str, int]) -> None:
    inputs = inputs_of(key, 4, seed=11)
    found, busy = run_unit(unit, key, inputs, 4)
    assert_equal(found, run_pass(key, inputs, 4), compares=False)
    assert busy == found.cycles


@pytest.mark.parametrize("scale", [1.0, 40.0, 1e3])
def test_exponentials_of_all_sizes_have_the_bits_of_the_model(unit: Simulation, scale: float) -> None:
    inputs = inputs_of(("softmax", "forward", 1), 12, seed=12)
    wide = VectorInputs(np.float32(scale) * inputs.x, inputs.y, inputs.mask, inputs.constants)
    found, _ = run_unit(unit, ("softmax", "forward", 1), wide, 12)
    assert_equal(found, run_pass(("softmax", "forward", 1), wide, 12), compares=False)


def test_reciprocals_of_powers_of_two_are_exact_and_have_the_bits_of_the_model(unit: Simulation) -> None:
    powers = np.float32(2.0) ** np.arange(-125, 126, 25, dtype=np.float32)
    sums = np.stack([powers, np.nextafter(powers, np.float32(np.inf))], axis=1)
    inputs = VectorInputs(sums, np.zeros_like(sums), np.zeros(sums.shape, dtype=bool), np.ones((5, LANES), np.float32))
    found, _ = run_unit(unit, ("softmax", "reciprocal", 0), inputs, len(sums))
    assert_equal(found, run_pass(("softmax", "reciprocal", 0), inputs, len(sums)), compares=False)
    np.testing.assert_array_equal(floats(found.out)[:, 0], 1 / powers)
    np.testing.assert_allclose(floats(found.out)[:, 1], 1 / powers, rtol=1e-6)


def test_all_passes_of_a_kind_take_at_most_the_cycles_that_the_simulator_charges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_row_programs()
    for kind, phase in {key[:2] for key in ROW_PROGRAMS}:
        charged = PASSES[kind, phase][0].operations
        monkeypatch.setitem(row_programs.ROW_PROGRAMS, (kind, phase, 9), (Operation(),) * (charged + 1))
        with pytest.raises(RtlError, match=f"{kind} {phase} has .* and the simulator charges {charged}"):
            check_row_programs()
        monkeypatch.delitem(row_programs.ROW_PROGRAMS, (kind, phase, 9))


def run(
    key: tuple[str, str, int], *constants: object, x: object, y: object = 0.0, mask: object = False
) -> VectorOutputs:
    """The pass in the model, with a row on each of ``ROWS`` lanes."""
    x = np.asarray(x, dtype=np.float32)
    filled = np.zeros((CONSTANTS, ROWS), dtype=np.float32)
    for number, each in enumerate(constants):
        filled[number] = each
    y, mask = (np.broadcast_to(np.asarray(each), x.shape) for each in (y, mask))
    takes = sum(bool(each.takes) for each in (ROW_PROGRAMS | STEPS_BETWEEN)[key])
    return run_pass(key, VectorInputs(x, y.astype(np.float32), mask, filled), len(x) // takes)


def floats(bits: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(bits, dtype=np.uint32).view(np.float32)


def rounded(values: np.ndarray) -> np.ndarray:
    return bf16_values(bf16_bits(values.astype(np.float32)))


def drawn(seed: int, deviation: float = 3.0) -> np.ndarray:
    """``[values, rows]`` of bf16 numbers."""
    return rounded(np.random.default_rng(seed).normal(0.0, deviation, (VALUES, ROWS)))


def softmax_parts(x: np.ndarray, scale: float, first: Callable[[np.ndarray], VectorOutputs]) -> tuple[np.ndarray, ...]:
    """Maxima, exponentials and their sums, by the passes."""
    maxima = floats(first(x).first_sums)
    shift = floats(run(("softmax", "shift", 0), -scale * LOG2_E, x=maxima[None]).out)[0]
    powers = run(("softmax", "forward", 1), scale * LOG2_E, shift, x=x)
    return maxima, floats(powers.out), floats(powers.first_sums)


@pytest.mark.parametrize("offset", [0.0, -300.0, 500.0])
def test_the_passes_of_a_softmax_and_its_gradient(offset: float) -> None:
    x, scale = drawn(1) + np.float32(offset), 0.125
    maxima, powers, sums = softmax_parts(x, scale, lambda x: run(("softmax", "forward", 0), x=x))
    np.testing.assert_array_equal(maxima, x.max(0))
    reciprocals = floats(run(("softmax", "reciprocal", 0), 1.0, x=sums[None]).out)[0]
    np.testing.assert_allclose(reciprocals, 1 / sums, rtol=1e-6)
    y = floats(run(("softmax", "forward", 2), reciprocals, x=powers).out)
    exact = np.exp(scale * (x.astype(np.float64) - x.max(0)))
    exact /= exact.sum(0)
    np.testing.assert_allclose(y, exact, rtol=2 * CLOSE)  # exponentials are rounded, and their shares again
    dy = drawn(2)
    products = floats(run(("softmax", "backward", 0), x=y, y=dy).first_sums)
    shift = floats(run(("softmax", "shift", 0), -scale, x=products[None]).out)[0]
    dx = floats(run(("softmax", "backward", 1), scale, shift, x=y, y=dy).out)
    np.testing.assert_allclose(dx, scale * y * (dy - (y * dy).sum(0)), rtol=CLOSE, atol=1e-6)


def test_the_passes_of_a_cross_entropy_and_its_gradient() -> None:
    x, labels = drawn(3), np.random.default_rng(4).integers(0, VALUES, ROWS)
    at_label = np.arange(VALUES)[:, None] == labels
    first = run(("cross_entropy", "forward", 0), x=x, mask=at_label)
    logits = floats(first.second_sums)
    np.testing.assert_array_equal(logits, x[labels, np.arange(ROWS)])
    maxima, powers, sums = softmax_parts(x, 1.0, lambda x: first)
    loss = floats(run(("cross_entropy", "loss", 0), x=np.stack([sums, logits]), y=np.stack([maxima, maxima])).out)[0]
    exact = np.exp(x.astype(np.float64) - x.max(0))
    np.testing.assert_allclose(loss, np.log(exact.sum(0)) + x.max(0) - logits, atol=3e-4)
    reciprocals = floats(run(("softmax", "reciprocal", 0), 1 / ROWS, x=sums[None]).out)[0]
    dx = floats(run(("cross_entropy", "backward", 0), reciprocals, -1 / ROWS, x=powers, mask=at_label).out)
    np.testing.assert_allclose(dx, (exact / exact.sum(0) - at_label) / ROWS, rtol=2 * CLOSE, atol=1e-5)


def test_the_passes_of_a_layer_normalisation_and_its_gradient() -> None:
    x, dy, eps = drawn(5) + np.float32(1.0), drawn(6, 1.0), 1e-5
    gamma, beta = np.repeat(rounded(np.random.default_rng(7).normal(1.0, 0.3, (2, VALUES, 1))), ROWS, axis=2)
    sums = run(("layer_norm", "forward", 0), x=x)
    statistics = VectorInputs(
        floats(sums.first_sums)[None], floats(sums.second_sums)[None], np.zeros((1, ROWS), dtype=bool),
        np.repeat(np.float32([[-0.5 / VALUES], [-eps / 2], [1.0], [0.0], [1.5]]), ROWS, axis=1),
    )  # fmt: skip
    scale, shift, *_ = floats(run_pass(("batch_norm", "statistics", 0), statistics, 1).out)
    pairs = np.stack([x, beta], axis=1).reshape(-1, ROWS)
    x_hat, out = (
        floats(run(("layer_norm", "forward", 1), scale, shift, x=pairs, y=np.repeat(gamma, 2, axis=0)).out)
        .reshape(VALUES, 2, ROWS)
        .swapaxes(0, 1)
    )
    exact = (x.astype(np.float64) - x.mean(0)) / np.sqrt(x.astype(np.float64).var(0) + eps)
    np.testing.assert_allclose(x_hat, exact, rtol=CLOSE, atol=1e-5)
    np.testing.assert_allclose(out, exact * gamma + beta, rtol=CLOSE, atol=1e-5)
    pairs, doubled = np.stack([x_hat, dy], axis=1).reshape(-1, ROWS), np.repeat(gamma, 2, axis=0)
    sums = run(("layer_norm", "backward", 0), x=pairs, y=doubled)
    gradients = VectorInputs(
        floats(sums.first_sums)[None], floats(sums.second_sums)[None], np.zeros((1, ROWS), dtype=bool),
        np.stack([np.full(ROWS, -1 / VALUES, dtype=np.float32), scale, *np.zeros((3, ROWS), dtype=np.float32)]),
    )  # fmt: skip
    constants = floats(run_pass(("batch_norm", "gradients", 0), gradients, 1).out)
    dx = floats(run(("layer_norm", "backward", 1), 0.0, 0.0, *constants, x=pairs, y=doubled).out)
    g = dy.astype(np.float64) * gamma
    exact_dx = scale * (g - g.mean(0) - x_hat * (g * x_hat).mean(0))
    np.testing.assert_allclose(dx, exact_dx, rtol=CLOSE, atol=1e-5)
    columns = run(("layer_norm", "backward", 2), x=x_hat, y=dy)
    np.testing.assert_allclose(floats(columns.second_sums), (dy * x_hat).sum(0), rtol=1e-5)


def test_the_passes_of_a_gelu_and_its_gradient() -> None:
    x, dy = drawn(8, 8.0), drawn(9, 1.0)
    slope = 2 * np.sqrt(2 / np.pi)
    share = 1 / (1 + np.exp(np.minimum(-slope * (x + 0.044715 * x.astype(np.float64) ** 3), 700.0)))
    y = floats(run(("gelu", "forward", 0), x=x).out)
    np.testing.assert_allclose(y, x * share, rtol=CLOSE, atol=1e-30)
    dx = floats(run(("gelu", "backward", 0), x=x, y=dy).out)
    exact = dy * share * (1 + x * slope * (1 + 3 * 0.044715 * x.astype(np.float64) ** 2) * (1 - share))
    np.testing.assert_allclose(dx, exact, rtol=2 * CLOSE, atol=1e-3)
