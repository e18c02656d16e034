"""Poolings: every bit beside the model, the simulator's charge, and what torch gives."""

import numpy as np
import pytest
import torch

from acf.errors import RtlError
from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.vector import pool_programs
from acf.rtl.design.vector.model import VectorInputs, run_pass
from acf.rtl.design.vector.operation import Operation
from acf.rtl.design.vector.pool_programs import POOL_PROGRAMS, POOL_STEPS, check_pool_programs
from acf.rtl.design.vector.unit import VectorSpec, VectorUnit
from acf.rtl.tools.simulation import Simulation
from tests.rtl.design.vector.passes import LANES, assert_equal, inputs_of, run_unit

CHANNELS, SIDE = 4, 6


@pytest.fixture(scope="module")
def unit() -> Simulation:
    return Simulation(VectorUnit(VectorSpec(LANES)), backend="pysim")


@pytest.mark.parametrize("key", [*POOL_PROGRAMS, *POOL_STEPS], ids=lambda key: "-".join(map(str, key)))
def test_a_pooling_has_the_bits_of_the_model(unit: Simulation, key: tuple[str, str, int]) -> None:
    inputs = inputs_of(key, 4, seed=21)
    places = np.random.default_rng(22).integers(1, 10, inputs.y.shape).astype(np.float32)
    if key[1] == "backward":
        inputs = VectorInputs(inputs.x, places, inputs.mask, inputs.constants)
    found, busy = run_unit(unit, key, inputs, 4)
    assert_equal(found, run_pass(key, inputs, 4), compares=False)
    assert busy == found.cycles


def test_a_pooling_takes_at_most_the_cycles_that_the_simulator_charges(monkeypatch: pytest.MonkeyPatch) -> None:
    check_pool_programs()
    monkeypatch.setitem(pool_programs.POOL_PROGRAMS, ("pool", "forward", 1), (Operation(),) * 13)
    with pytest.raises(RtlError, match=r"pool forward 1 has 3\.25 operations per value .* the simulator charges 3"):
        check_pool_programs()


def image(seed: int, side: int = SIDE) -> torch.Tensor:
    """``[1, channels, side, side]`` of bf16 values, none below zero and many equal."""
    values = np.maximum(np.random.default_rng(seed).normal(0.0, 1.0, (1, CHANNELS, side, side)), 0)
    return torch.tensor(bf16_values(bf16_bits(values.astype(np.float32))))


def run(key: tuple[str, str, int], x: np.ndarray, y: np.ndarray | None = None, constant: float = 0.0) -> np.ndarray:
    """What a pass emits over pixels ``[takes, channels]``."""
    takes = sum(bool(each.takes) for each in (POOL_PROGRAMS | POOL_STEPS)[key])
    x = np.ascontiguousarray(x, dtype=np.float32)
    filled = np.full((5, CHANNELS), constant, dtype=np.float32)
    inputs = VectorInputs(x, x if y is None else np.ascontiguousarray(y), np.zeros(x.shape, dtype=bool), filled)
    done = run_pass(key, inputs, len(x) // takes)
    return (done.out if done.out.size else done.first_sums[None]).view(np.float32)


def windows(values: torch.Tensor, kernel: int, stride: int, padding: int) -> np.ndarray:
    """The pixels of all windows one behind another, ``[windows * kernel^2, channels]``; outside there is -Inf."""
    padded = torch.nn.functional.pad(values, (padding,) * 4, value=-torch.inf)
    found = padded.unfold(2, kernel, stride).unfold(3, kernel, stride)  # [1, channels, rows, columns, kernel, kernel]
    return found.permute(0, 2, 3, 4, 5, 1).reshape(-1, CHANNELS).numpy()


def as_image(pixels: np.ndarray, side: int) -> np.ndarray:
    return pixels.reshape(side, side, CHANNELS).transpose(2, 0, 1)[None]


@pytest.mark.parametrize(("number", "kernel", "padding"), [(0, 3, 1), (1, 2, 0)])
def test_maxima_of_windows_and_their_places_are_those_of_torch(number: int, kernel: int, padding: int) -> None:
    x = image(1)
    out = run(("pool", "forward", number), windows(x, kernel, 2, padding)).reshape(-1, 2, CHANNELS)
    expected, at = torch.nn.functional.max_pool2d(x, kernel, 2, padding, return_indices=True)
    np.testing.assert_array_equal(as_image(out[:, 0], SIDE // 2), expected.numpy())
    places = as_image(out[:, 1], SIDE // 2).astype(int) - 1
    row, column = np.meshgrid(*2 * (np.arange(SIDE // 2) * 2 - padding,), indexing="ij")
    np.testing.assert_array_equal((row + places // kernel) * SIDE + column + places % kernel, at.numpy())


def test_gradients_go_where_the_maximum_of_a_window_of_four_was() -> None:
    x = image(2).requires_grad_()
    dy = image(3, SIDE // 2)
    places = run(("pool", "forward", 1), windows(x.detach(), 2, 2, 0)).reshape(-1, 2, CHANNELS)[:, 1]
    rows = dy.permute(0, 2, 3, 1).reshape(-1, CHANNELS).numpy()
    out = run(("pool", "backward", 1), rows, places)
    (expected,) = torch.autograd.grad(torch.nn.functional.max_pool2d(x, 2), x, dy)
    dx = out.reshape(SIDE // 2, SIDE // 2, 2, 2, CHANNELS).transpose(0, 2, 1, 3, 4).reshape(-1, CHANNELS)
    np.testing.assert_array_equal(as_image(dx, SIDE), expected.numpy())


def test_gradients_of_windows_that_overlap_are_added() -> None:
    x, half = image(6).requires_grad_(), SIDE // 2
    dy = image(7, half)
    places = run(("pool", "forward", 0), windows(x.detach(), 3, 2, 1)).reshape(half, half, 2, CHANNELS)[:, :, 1]
    gradients, places = (  # without windows below and to the right of the last
        np.pad(each, ((0, 1), (0, 1), (0, 0))) for each in (dy[0].permute(1, 2, 0).numpy(), places)
    )
    neighbours = [(1, 1), (1, 0), (0, 1), (0, 0)]
    rows, at = (
        np.stack([each[down : half + down, right : half + right] for down, right in neighbours], axis=2)
        for each in (gradients, places)
    )
    out = run(("pool", "backward", 0), rows.reshape(-1, CHANNELS), at.reshape(-1, CHANNELS))
    (expected,) = torch.autograd.grad(torch.nn.functional.max_pool2d(x, 3, 2, 1), x, dy)
    quads = out.reshape(half, half, 4, CHANNELS)[:, :, [1, 0, 2, 3]].reshape(half, half, 2, 2, CHANNELS)
    dx = quads.transpose(0, 2, 1, 3, 4).reshape(-1, CHANNELS)
    np.testing.assert_allclose(as_image(dx, SIDE), expected.numpy(), rtol=2.0**-8)  # rounded to bf16


def test_a_global_average_and_its_gradient_are_those_of_torch() -> None:
    x, dy = image(4), image(5, 1)
    pixels = x.permute(0, 2, 3, 1).reshape(-1, CHANNELS).numpy()
    mean = run(("pool", "mean", 0), run(("pool", "forward", 2), pixels), constant=1 / SIDE**2)
    np.testing.assert_allclose(mean[0], x.mean((0, 2, 3)).numpy(), rtol=2.0**-8)
    dx = run(("pool", "backward", 2), np.repeat(dy.reshape(1, CHANNELS).numpy(), SIDE**2, axis=0), constant=1 / SIDE**2)
    np.testing.assert_allclose(dx, np.repeat(dy.reshape(1, CHANNELS).numpy() / SIDE**2, SIDE**2, axis=0), rtol=2.0**-8)
