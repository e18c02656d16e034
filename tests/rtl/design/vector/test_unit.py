"""The vector unit beside its model: every bit of every pass, and the cycles that the simulator charges for it."""

import numpy as np
import pytest

from acf.errors import RtlError
from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.vector.model import VectorInputs, run_pass
from acf.rtl.design.vector.programs import CHANNEL_PROGRAMS, PROGRAMS
from acf.rtl.design.vector.registry import PROGRAM_SETS
from acf.rtl.design.vector.unit import VectorSpec, VectorUnit
from acf.rtl.tools.port_arrays import split_bits
from acf.rtl.tools.simulation import Simulation
from acf.sim.memory import OnChipMemory
from acf.sim.vector import VectorUnit as ModelledUnit
from acf.sim.vector import count_passes
from acf.trace import VectorOp
from tests.rtl.design.vector.passes import LANES, assert_equal, inputs_of, run_unit, words


@pytest.fixture(scope="module")
def unit() -> Simulation:
    return Simulation(VectorUnit(VectorSpec(LANES)), backend="pysim")


@pytest.mark.parametrize("key", list(PROGRAMS), ids=lambda key: "-".join(map(str, key)))
def test_a_pass_has_the_bits_of_the_model_and_the_cycles_of_the_simulator(unit: Simulation, key) -> None:
    vectors, (kind, phase, number) = 3, key
    inputs = inputs_of(key, vectors, seed=1)
    found, busy = run_unit(unit, key, inputs, vectors)
    assert_equal(found, run_pass(key, inputs, vectors), kind == "relu")
    op = VectorOp("layer", kind, phase, vectors * LANES, after=0)
    passes = list(count_passes(op, ModelledUnit(LANES, 2, 0.0, 0.0, 0.0), OnChipMemory(1 << 20)))
    assert busy == found.cycles == passes[number].cycles


@pytest.mark.parametrize("key", list(CHANNEL_PROGRAMS), ids=lambda key: "-".join(map(str, key)))
def test_work_between_passes_has_the_bits_of_the_model(unit: Simulation, key) -> None:
    inputs = inputs_of(key, 3, seed=5)
    found, _ = run_unit(unit, key, inputs, 3)
    assert_equal(found, run_pass(key, inputs, 3), compares=False)


def test_statistics_give_scale_and_shift_of_a_batch_normalisation() -> None:
    values = np.random.default_rng(6).normal(2.0, 3.0, (64, LANES)).astype(np.float32)
    gamma, beta, eps = np.float32([1.5, -0.5]), np.float32([0.25, 3.0]), 1e-5
    sums = np.stack([values.sum(0), (values**2).sum(0)])
    constants = np.float32([[-1 / 128] * 2, [-eps / 2] * 2, gamma, beta, [1.5] * 2])
    inputs = VectorInputs(sums[:1], sums[1:], np.zeros((1, LANES), dtype=bool), constants)
    scale, shift, inverse, offset = run_pass(("batch_norm", "statistics", 0), inputs, 1).out.view(np.float32)
    mean, deviation = values.mean(0), np.sqrt(values.var(0) + eps)
    np.testing.assert_allclose(scale, gamma / deviation, rtol=1e-5)
    np.testing.assert_allclose(shift, beta - gamma * mean / deviation, rtol=1e-4)
    np.testing.assert_allclose(inverse, 1 / deviation, rtol=1e-5)
    np.testing.assert_allclose(offset, -mean / deviation, rtol=1e-5)


def test_sums_go_on_where_a_start_keeps_them(unit: Simulation) -> None:
    key = ("batch_norm", "forward", 0)
    inputs = inputs_of(key, 4, seed=7)
    unit.restart()
    for first in (0, 2):
        unit.run(
            {
                "start": [1],
                "program": [PROGRAM_SETS["cnn"].number(*key)],
                "vectors": [2],
                "keeps_sums": [int(first > 0)],
            }
        )
        for row in (first, first, first + 1, first + 1):
            seen = unit.run({"x": words(inputs.x[row : row + 1]), "in_valid": [1]})
    seen = unit.run({"in_valid": [0]})
    expected = run_pass(key, inputs, 4)
    np.testing.assert_array_equal(split_bits(seen["first_sums"], 32, LANES)[0], expected.first_sums)
    np.testing.assert_array_equal(split_bits(seen["second_sums"], 32, LANES)[0], expected.second_sums)


@pytest.mark.parametrize("key", [("sgd", "update", 0), ("relu", "forward", 0)])
def test_waiting_for_memory_changes_cycles_and_nothing_else(unit: Simulation, key) -> None:
    inputs = inputs_of(key, 3, seed=2)
    found, busy = run_unit(unit, key, inputs, 3, seed=3)
    expected = run_pass(key, inputs, 3)
    assert_equal(found, expected, key[0] == "relu")
    assert found.cycles == expected.cycles < busy


def test_an_update_follows_the_rule_of_sgd(unit: Simulation) -> None:
    gradient, weight, momentum = np.random.default_rng(4).standard_normal((3, 1, LANES)).astype(np.float32)
    constants = np.repeat(np.float32([[0.01], [0.9], [-0.1], [0], [0]]), LANES, axis=1)
    x, y = np.concatenate([gradient, momentum]), np.concatenate([weight, weight])
    inputs = VectorInputs(x, y, np.zeros((2, LANES), dtype=bool), constants)
    found, _ = run_unit(unit, ("sgd", "update", 0), inputs, 1)
    new_momentum, new_weight, operand = found.out.astype(np.uint32).view(np.float32)
    expected = 0.9 * momentum[0] + gradient[0] + 0.01 * weight[0]
    np.testing.assert_allclose(new_momentum, expected, rtol=1e-5)
    np.testing.assert_allclose(new_weight, weight[0] - 0.1 * expected, rtol=1e-5)
    np.testing.assert_array_equal(operand, bf16_values(bf16_bits(new_weight)))


def test_a_start_that_cannot_run_is_refused(unit: Simulation) -> None:
    unit.restart()
    seen = unit.run(
        {"start": [1, 1, 1, 1], "program": [len(PROGRAM_SETS["cnn"].programs), 0, 0, 0], "vectors": [1, 0, 1, 1]}
    )
    assert seen["refused"].tolist() == [1, 1, 0, 1]
    assert seen["busy"].tolist() == [0, 0, 0, 1]


def test_a_unit_without_lanes_is_refused() -> None:
    with pytest.raises(RtlError, match="lanes 0 must be at least 1"):
        VectorSpec(0)


def test_a_unit_with_programs_that_nobody_wrote_is_refused() -> None:
    with pytest.raises(RtlError, match="programs 'rnn' is not one of cnn, transformer"):
        VectorSpec(programs="rnn")
