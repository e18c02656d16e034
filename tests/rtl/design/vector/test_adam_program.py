"""An update of Adam: every bit beside the model, the charge of the simulator, and the steps of torch."""

import numpy as np
import pytest
import torch

from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.vector.adam_program import ADAM_PROGRAM
from acf.rtl.design.vector.model import VectorInputs, run_pass
from acf.rtl.design.vector.unit import VectorSpec, VectorUnit
from acf.rtl.tools.simulation import Simulation
from acf.sim.vector import PASSES
from tests.rtl.design.vector.passes import LANES, assert_equal, inputs_of, run_unit

KEY = ("adam", "update", 0)
ROOT_ERROR = 1e-4
"""Of the change of a weight, relative: 2.4e-5 of the root and as much of the reciprocal, doubled for rounding."""


def adam_inputs(gradient: np.ndarray, moments: np.ndarray, weight: np.ndarray, constants: list[float]) -> VectorInputs:
    """``[vectors, lanes]`` each, the second moment first."""
    x = np.stack([moments[1], moments[0], weight], axis=1).reshape(-1, weight.shape[1])
    filled = np.repeat(np.array(constants, dtype=np.float32)[:, None], weight.shape[1], axis=1)
    return VectorInputs(x, np.repeat(gradient, 3, axis=0), np.zeros(x.shape, dtype=bool), filled)


def adam_constants(rate: float, betas: tuple[float, float], eps: float, decay: float, step: int) -> list[float]:
    first, second = (1 - beta**step for beta in betas)
    k = rate * second**0.5 / first
    return [1 - betas[0], 1 - betas[1], -2 / k**2, eps * second**0.5 / k, 1 - rate * decay]


@pytest.fixture(scope="module")
def unit() -> Simulation:
    return Simulation(VectorUnit(VectorSpec(LANES, "transformer")), backend="pysim")


@pytest.mark.parametrize("seed", [1, 2])
def test_an_update_has_the_bits_of_the_model_and_the_cycles_of_the_simulator(unit: Simulation, seed: int) -> None:
    random = inputs_of(KEY, 4, seed)
    found, busy = run_unit(unit, KEY, random, 4)
    assert_equal(found, run_pass(KEY, random, 4), compares=False)
    draw = np.random.default_rng(seed).standard_normal((4, 6, LANES)).astype(np.float32)
    draw[2] = draw[2] ** 2 * np.float32(10.0) ** np.arange(-30, 30, 10, dtype=np.float32)[:, None]
    inputs = adam_inputs(draw[0], draw[1:3], draw[3], adam_constants(1e-3, (0.9, 0.999), 1e-8, 0.01, 7))
    found, _ = run_unit(unit, KEY, inputs, 6)
    assert_equal(found, run_pass(KEY, inputs, 6), compares=False)
    assert busy == 4 * len(ADAM_PROGRAM[KEY]) == 4 * PASSES["adam", "update"][0].operations


@pytest.mark.parametrize(("rate", "eps"), [(1e-3, 1e-8), (0.3, 1e-4), (1e-5, 1e-8)])
def test_several_updates_take_the_steps_of_torch(rate: float, eps: float) -> None:
    rng, shape = np.random.default_rng(3), (5, 16)
    weight = torch.tensor(rng.standard_normal(shape), dtype=torch.float32, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], lr=rate, betas=(0.9, 0.99), eps=eps, weight_decay=0.1)
    master, moments = weight.detach().numpy().copy(), np.zeros((2, *shape), dtype=np.float32)
    for step in range(1, 6):
        gradient = bf16_values(bf16_bits(rng.standard_normal(shape).astype(np.float32) * np.float32(10.0) ** -step))
        gradient[0] = 0.0  # and both moments with it
        before, old = weight.detach().numpy().copy(), master
        weight.grad = torch.tensor(gradient)
        optimizer.step()
        inputs = adam_inputs(gradient, moments, master, adam_constants(rate, (0.9, 0.99), eps, 0.1, step))
        out = run_pass(KEY, inputs, shape[0]).out.view(np.float32).reshape(shape[0], 4, shape[1])
        moments, master = np.stack([out[:, 1], out[:, 0]]), np.ascontiguousarray(out[:, 2])
        change = weight.detach().numpy() - before
        rounding = 2 * np.spacing(np.abs(before))  # of the weight itself
        assert (np.abs(master - old - change) <= ROOT_ERROR * np.abs(change) + rounding).all()
        np.testing.assert_array_equal(out[:, 3], bf16_values(bf16_bits(master)))
    state = optimizer.state[weight]
    np.testing.assert_allclose(moments[0], state["exp_avg"].numpy(), rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(moments[1], state["exp_avg_sq"].numpy(), rtol=1e-5, atol=1e-12)
