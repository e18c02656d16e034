"""The step by NumPy, bit by bit what the device must leave in memory: same sums, same order, same rounding."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.fabric.encoding import Bits
from acf.rtl.design.vector.model import VectorInputs, VectorOutputs, run_pass
from acf.rtl.device.host.placed_product import with_operands
from acf.rtl.device.step.layer import Floats, StepSizes, StepState
from acf.rtl.device.step.passes import Key
from acf.rtl.device.step.plan import StepPlan
from acf.rtl.verify.lockstep.reference_output import ordered_output


@dataclass(frozen=True, eq=False)
class StepResult:
    """``y``: the layer's output and ``dz``: the gradient of its product, bf16 bits ``[tokens, outputs]``; new weights.

    ``dx``: the gradient of the input, bf16 bits ``[tokens, inputs]``; no rows where the step does not compute it.
    ``weight`` bf16 bits, ``master`` and ``momentum`` float32 ``[inputs, outputs]``; ``channels`` as in `StepState`.
    """

    dx: Bits
    y: Bits
    dz: Bits
    weight: Bits
    master: Floats
    momentum: Floats
    channels: Floats

    def differences(self, other: "StepResult") -> list[str]:
        """The fields that differ in some bit."""
        return [name for name in vars(self) if getattr(self, name).tobytes() != getattr(other, name).tobytes()]


def update_constants(sizes: StepSizes, lanes: int) -> Floats:
    """Constants of an SGD update, for every lane."""
    values = [sizes.weight_decay, sizes.momentum, -sizes.learning_rate, 0.0, 0.0]
    return np.repeat(np.array(values, dtype=np.float32)[:, None], lanes, axis=1)


def input_constants(sizes: StepSizes, gamma: Floats, beta: Floats) -> Floats:
    """Constants from which the statistics of a channel group are made."""
    ones = np.ones_like(gamma)
    count = np.float32(-1 / (2 * sizes.tokens))
    return np.stack([count * ones, np.float32(-sizes.eps / 2) * ones, gamma, beta, np.float32(1.5) * ones])


def reference_step(state: StepState, sizes: StepSizes, plan: StepPlan) -> StepResult:
    """Forward, loss, backward and update."""
    tile = plan.sizes.shape.tile
    forward = ordered_output(with_operands(plan.programs["forward"], state.x, state.weight)).view(np.float32)
    y, dz = np.zeros_like(forward), np.zeros_like(forward)
    channels = state.channels.copy()
    for column, order in enumerate(plan.order):
        own = slice(column * tile, (column + 1) * tile)
        rows = np.concatenate([np.arange(row * tile, (row + 1) * tile) for row in order])
        group = _channel_group(forward[rows, own], bf16_values(state.target)[rows, own], channels[:, own], sizes)
        y[rows, own], dz[rows, own], channels[:, own] = group
    weight_gradient = weight_gradient_of(state, plan, bf16_bits(dz))
    dx = state.x[:0]
    if "input_gradient" in plan.programs:
        back = with_operands(plan.programs["input_gradient"], bf16_bits(dz), np.ascontiguousarray(state.weight.T))
        dx = bf16_bits(ordered_output(back).view(np.float32))
    present = np.kron(state.kept, np.ones((tile, tile), dtype=bool))
    momentum, master, weight = (
        np.where(present, each, np.float32(0)) for each in _update(weight_gradient, state.master, state.momentum, sizes)
    )
    return StepResult(dx, bf16_bits(y), bf16_bits(dz), bf16_bits(weight), master, momentum, channels)


def weight_gradient_of(state: StepState, plan: StepPlan, dz: Bits) -> Floats:
    """The weight gradient as the device leaves it in memory: float32 of bf16 values ``[inputs, outputs]``."""
    program = with_operands(plan.programs["weight_gradient"], np.ascontiguousarray(state.x.T), dz)
    return ordered_output(program).view(np.float32)


def _channel_group(z: Floats, target: Floats, channels: Floats, sizes: StepSizes) -> tuple[Floats, Floats, Floats]:
    """Output, gradient of ``z``, and new channel values of one channel group, ``[tokens, tile]``."""
    kind, lanes = "batch_norm", z.shape[1]
    sums = _pass((kind, "forward", 0), z)
    first = _pass((kind, "statistics", 0), *_both(sums), input_constants(sizes, channels[0], channels[1]))
    scale, shift, inverse, offset = first.out.view(np.float32)
    nothing = np.zeros(lanes, dtype=np.float32)
    normalised = _out((kind, "forward", 1), z, z, np.stack([scale, shift, nothing, nothing, nothing]))
    y = _out(("relu", "forward", 0), normalised)
    dy = _out(("add", "forward", 0), y, -target)
    inputs = VectorInputs(dy, y, y > 0, np.zeros((5, lanes), dtype=np.float32))
    masked = run_pass(("relu", "backward", 0), inputs, len(dy)).out.view(np.float32)
    sums = _pass((kind, "backward", 0), z, masked, np.stack([inverse, offset, nothing, nothing, nothing]))
    count = np.full(lanes, -1 / sizes.tokens, dtype=np.float32)
    second = _pass((kind, "gradients", 0), *_both(sums), np.stack([count, scale, nothing, nothing, nothing]))
    dz = _out((kind, "backward", 1), z, masked, np.stack([inverse, offset, *second.out.view(np.float32)]))
    gradients = [each.view(np.float32)[None] for each in (sums.second_sums, sums.first_sums)]
    updated = [
        _update(gradient, channels[number : number + 1], channels[number + 2 : number + 3], sizes)
        for number, gradient in enumerate(gradients)
    ]
    return y, dz, np.concatenate([updated[0][1], updated[1][1], updated[0][0], updated[1][0]])


def _pass(key: Key, x: Floats, y: Floats | None = None, constants: Floats | None = None) -> VectorOutputs:
    lanes = x.shape[1]
    none = np.zeros((5, lanes), dtype=np.float32)
    mask = np.zeros((1, lanes), dtype=bool)
    return run_pass(key, VectorInputs(x, x if y is None else y, mask, none if constants is None else constants), len(x))


def _out(key: Key, x: Floats, y: Floats | None = None, constants: Floats | None = None) -> Floats:
    return _pass(key, x, y, constants).out.view(np.float32)


def _both(sums: VectorOutputs) -> tuple[Floats, Floats]:
    return sums.first_sums.view(np.float32)[None], sums.second_sums.view(np.float32)[None]


def _update(gradient: Floats, value: Floats, momentum: Floats, sizes: StepSizes) -> NDArray[np.float32]:
    """New momentum, value and bf16 operand, ``[3, *gradient.shape]``; all of a row is updated at a time."""
    x = np.stack([gradient, momentum], axis=1).reshape(-1, gradient.shape[1])
    constants = update_constants(sizes, gradient.shape[1])
    inputs = VectorInputs(x, np.repeat(value, 2, axis=0), np.zeros((1, gradient.shape[1]), dtype=bool), constants)
    out = run_pass(("sgd", "update", 0), inputs, len(gradient)).out.view(np.float32)
    return np.ascontiguousarray(out.reshape(len(gradient), 3, -1).transpose(1, 0, 2))
