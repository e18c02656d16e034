"""The step by NumPy, bit by bit what the device must leave in memory: same sums, same order, same rounding."""

from dataclasses import dataclass

import numpy as np

from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.design.fabric.encoding import Bits
from acf.rtl.device.host.placed_product import with_operands
from acf.rtl.device.step.layer import Floats, StepSizes, StepState
from acf.rtl.device.step.optimizer import optimizer_named
from acf.rtl.device.step.plan import StepPlan
from acf.rtl.verify.lockstep.reference_output import ordered_output


@dataclass(frozen=True, eq=False)
class StepResult:
    """``y``: the layer's output and ``dz``: the gradient of its product, bf16 bits ``[tokens, outputs]``; new weights.

    ``dx``: the gradient of the input, bf16 bits ``[tokens, inputs]``; no rows where the step does not compute it.
    ``weight`` bf16 bits ``[inputs, outputs]``; ``master``, ``moments`` and ``channels`` as in `StepState`. ``loss``: of
    every token, where the device computes it.
    """

    dx: Bits
    y: Bits
    dz: Bits
    weight: Bits
    master: Floats
    moments: Floats
    channels: Floats
    loss: Floats

    def differences(self, other: "StepResult") -> list[str]:
        """The fields that differ in some bit."""
        return [name for name in vars(self) if getattr(self, name).tobytes() != getattr(other, name).tobytes()]


def reference_step(state: StepState, sizes: StepSizes, plan: StepPlan) -> StepResult:
    """Forward, loss, backward and update."""
    tile = plan.sizes.shape.tile
    forward = ordered_output(with_operands(plan.programs["forward"], state.x, state.weight)).view(np.float32)
    work = plan.kind.reference(forward, state, sizes, plan.order, tile)
    dz = bf16_bits(work.dz)
    weight_gradient = weight_gradient_of(state, plan, dz)
    dx = state.x[:0]
    if "input_gradient" in plan.programs:
        back = with_operands(plan.programs["input_gradient"], dz, np.ascontiguousarray(state.weight.T))
        dx = bf16_bits(ordered_output(back).view(np.float32))
    present = np.kron(state.kept, np.ones((tile, tile), dtype=bool))
    updated = optimizer_named(sizes.optimizer).updated(weight_gradient, state.master, state.moments, sizes)
    *moments, master, weight = (np.where(present, each, np.float32(0)) for each in updated)
    return StepResult(dx, bf16_bits(work.y), dz, bf16_bits(weight), master, np.stack(moments), work.channels, work.loss)


def weight_gradient_of(state: StepState, plan: StepPlan, dz: Bits) -> Floats:
    """The weight gradient as the device leaves it in memory: float32 of bf16 values ``[inputs, outputs]``."""
    program = with_operands(plan.programs["weight_gradient"], np.ascontiguousarray(state.x.T), dz)
    return ordered_output(program).view(np.float32)
