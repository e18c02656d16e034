"""A whole training step in gates: every bit of what it leaves in memory, and the cycles of the simulator."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from acf.errors import RtlError
from acf.rtl.design.arithmetic.model import bf16_values
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.step.layer import StepSizes, StepState, random_step
from acf.rtl.device.step.model import model_step
from acf.rtl.device.step.optimizer import optimizer_named
from acf.rtl.device.step.plan import StepPlan, plan_step
from acf.rtl.device.step.reference import StepResult, reference_step
from acf.rtl.device.step.run import run_step
from tests.rtl.device.programs import SIZES, VECTOR_AXI, VECTOR_SIZES

SMALL = StepSizes(tokens=16, inputs=16, outputs=16)
LARGER = StepSizes(tokens=64, inputs=32, outputs=32)


def planned(
    sizes: StepSizes, fabric: FabricSizes = VECTOR_SIZES, walks: bool = False, dataflow: str = "fastest"
) -> tuple[StepState, StepPlan]:
    state = random_step(sizes, fabric.shape.tile)
    return state, plan_step(state, replace(fabric, memory_flits=1 << 14), VECTOR_AXI, walks, dataflow, sizes)


@pytest.mark.parametrize(
    ("walks", "dataflow"),
    [(False, "output-stationary"), (True, "output-stationary"), (True, "split-K")],
    ids=["commands of the host", "walked", "walked split-K"],
)
def test_a_step_leaves_the_bits_of_the_reference_in_memory(
    vector_device: DeviceSimulation, walks: bool, dataflow: str
) -> None:
    state, plan = planned(SMALL, walks=walks, dataflow=dataflow)
    assert not state.kept.all()  # the weight gradient is masked
    assert {each.program.reduces for each in plan.programs.values()} == {dataflow == "split-K"}
    run = run_step(vector_device, plan, state, SMALL)
    assert run.result.differences(reference_step(state, SMALL, plan)) == []
    model = model_step(plan, vector_device, state, run.result)
    assert run.product_cycles == pytest.approx(model.product_cycles, rel=0.1)
    assert model.cycles < model.memory_cycles < run.cycles < 1.5 * model.memory_cycles
    assert run.vector_cycles == sum(run.record(plan)["operations"])


@pytest.mark.parametrize(("walks", "optimizer"), [(False, "sgd"), (True, "adam")])
def test_a_step_of_layer_norm_gelu_and_cross_entropy_leaves_the_bits_of_the_reference(
    vector_device: DeviceSimulation, walks: bool, optimizer: str
) -> None:
    sizes = replace(SMALL, passes="transformer", optimizer=optimizer, learning_rate=0.01)
    state, plan = planned(sizes, walks=walks)
    run = run_step(vector_device, plan, state, sizes)
    assert run.result.differences(reference_step(state, sizes, plan)) == []
    assert run.result.loss.shape == (sizes.tokens,)
    assert run.vector_cycles == sum(run.record(plan)["operations"])
    model = model_step(plan, vector_device, state, run.result)
    assert run.product_cycles == pytest.approx(model.product_cycles, rel=0.1)
    assert model.cycles < model.memory_cycles < run.cycles < 1.6 * model.memory_cycles


def test_the_reference_of_rows_takes_the_step_of_torch() -> None:
    sizes = replace(LARGER, passes="transformer")
    state, plan = planned(sizes, SIZES)
    found, weight = reference_step(state, sizes, plan), torch.tensor(bf16_values(state.weight), requires_grad=True)
    gamma, beta = (torch.tensor(each, requires_grad=True) for each in state.channels[:2])
    z = torch.tensor(bf16_values(state.x)) @ weight
    normalised = torch.nn.functional.layer_norm(z, (sizes.outputs,), gamma, beta, eps=sizes.eps)
    y = torch.nn.functional.gelu(normalised, approximate="tanh")
    labels = torch.tensor(bf16_values(state.target).argmax(1))
    losses = torch.nn.functional.cross_entropy(y, labels, reduction="none")
    np.testing.assert_allclose(bf16_values(found.y), y.detach().numpy(), atol=0.04)
    np.testing.assert_allclose(found.loss, losses.detach().numpy(), atol=0.04)
    gradients = torch.autograd.grad(losses.mean(), (weight, gamma, beta))
    check_updates(sizes, state, found, [each.numpy() for each in gradients])


def check_updates(sizes: StepSizes, state: StepState, found: StepResult, gradients: list[np.ndarray]) -> None:
    """New weights, gamma and beta are those of SGD with these gradients, and absent weights are zero."""
    values = [state.master, *state.channels[:2]]
    momenta, new = [state.moments[0], *state.channels[2:]], [found.master, *found.channels[:2]]
    present = np.kron(state.kept, np.ones((8, 8), dtype=bool))
    for gradient, value, momentum, after in zip(gradients, values, momenta, new, strict=True):
        expected = value - sizes.learning_rate * (sizes.momentum * momentum + gradient + sizes.weight_decay * value)
        kept = present if value.ndim == 2 else np.ones_like(value, dtype=bool)
        error = np.abs(after - expected)[kept].mean() / np.abs(sizes.learning_rate * gradient)[kept].mean()
        assert error < 0.02
        assert not after[~kept].any()


def test_the_reference_takes_the_step_of_torch() -> None:
    state, plan = planned(LARGER, SIZES)
    found, weight = reference_step(state, LARGER, plan), torch.tensor(bf16_values(state.weight), requires_grad=True)
    gamma, beta = (torch.tensor(each, requires_grad=True) for each in state.channels[:2])
    z = torch.tensor(bf16_values(state.x)) @ weight
    y = torch.relu(torch.nn.functional.batch_norm(z, None, None, gamma, beta, training=True, eps=LARGER.eps))
    loss = (y - torch.tensor(bf16_values(state.target))).square().sum() / 2
    gradients = torch.autograd.grad(loss, (weight, gamma, beta))
    np.testing.assert_allclose(bf16_values(found.y), y.detach().numpy(), atol=0.04)
    check_updates(LARGER, state, found, [each.numpy() for each in gradients])


def test_a_wrong_bit_is_named() -> None:
    state, plan = planned(SMALL)
    right = reference_step(state, SMALL, plan)
    wrong = StepResult(**vars(right) | {"dz": right.dz ^ 1})
    assert wrong.differences(right) == ["dz"]


def test_steps_of_ragged_tiles_are_refused() -> None:
    with pytest.raises(RtlError, match="tokens 12 is not a multiple of the tile of 8"):
        random_step(replace(SMALL, tokens=12), 8)
    with pytest.raises(RtlError, match="8 rows, shared by 2 mesh rows, are no whole tiles of 8 each"):
        planned(replace(SMALL, tokens=8), SIZES)


def test_steps_that_nobody_planned_are_refused() -> None:
    with pytest.raises(RtlError, match="passes 'rnn' are not one of cnn, transformer"):
        planned(replace(SMALL, passes="rnn"))
    with pytest.raises(RtlError, match="optimizer 'lion' is not one of sgd, adam"):
        random_step(replace(SMALL, optimizer="lion"), 8)
    with pytest.raises(RtlError, match=r"Adam with learning rate 0\.0 .* give a rate above 0"):
        optimizer_named("adam").lane_constants(replace(SMALL, learning_rate=0.0), 8)
