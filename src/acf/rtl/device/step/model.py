"""The simulator's whole-step model of the same step: products and passes in its schedule."""

from dataclasses import dataclass, replace

import numpy as np

from acf.errors import RtlError
from acf.rtl.design.arithmetic.model import bf16_values
from acf.rtl.device.host.layer_runs import memory_ports
from acf.rtl.device.host.placed_product import DATAFLOWS, encode_dense
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.step.layer import StepState
from acf.rtl.device.step.plan import StepPlan
from acf.rtl.device.step.reference import StepResult
from acf.rtl.device.vector.descriptor import PROGRAMS
from acf.rtl.device.vector.traits import TRAITS
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.memory_ports import play_through_ports
from acf.sim.memory import OnChipMemory
from acf.sim.result import OpResult
from acf.sim.vector import Job, StepSchedule
from acf.sim.whole_step import WholeStep
from acf.trace import TracedOp, VectorOp


@dataclass(frozen=True)
class ModelledStep:
    """Cycles of the simulator: ``product_cycles`` of every product through the same port, and the whole step.

    ``cycles``: as `acf.sim.whole_step` schedules it, activations on chip, passes fused and overlapped with products.
    ``memory_cycles``: the device's own order, in which every pass reads and writes memory through the port, and begins
    when the one before has ended.
    """

    product_cycles: dict[str, int]
    cycles: int
    memory_cycles: int


def model_step(plan: StepPlan, device: DeviceSimulation, state: StepState, result: StepResult) -> ModelledStep:
    """The step on the simulator, its vector unit as wide as the device's, over the zeros of its operands."""
    shape = plan.sizes.shape
    ports = memory_ports(plan.sizes, device.axi, device.latency_cycles)
    if plan.walker is not None:
        ports = replace(ports, row_command_bytes=0, column_command_bytes=0)
    x, dz = (bf16_values(each) != 0 for each in (state.x, result.dz))
    present = np.kron(state.kept, np.ones((shape.tile, shape.tile), dtype=bool))
    operands = {
        "forward": (x, present, None),
        "input_gradient": (dz, present.T.copy(), None),
        "weight_gradient": (x.T.copy(), dz, present),
    }
    dataflows = {name: DATAFLOWS[each.program.reduces] for name, each in plan.programs.items()}
    programs = {name: encode_dense(*operands[name], plan.sizes, each).program for name, each in dataflows.items()}
    cycles = {name: play_through_ports(each, shape, ports).cycles for name, each in programs.items()}
    return ModelledStep(cycles, _scheduled(plan, cycles), _through_memory(plan, device, cycles))


def _scheduled(plan: StepPlan, products: dict[str, int]) -> int:
    """`WholeStep` over the same products and passes."""
    shape = plan.sizes.shape
    if not isinstance(shape, AdaptiveFabric):
        raise RtlError("the shape of this device has neither clock nor memory; build it from a fabric of `acf.sim`")
    step = WholeStep(replace(shape, vector_lanes=shape.tile), OnChipMemory(shape.on_chip_bytes))
    outputs = plan.regions["y"].count * shape.tile**2
    weights = len(plan.blocks) * shape.tile**2
    step.add_product(TracedOp("layer", "forward", "x", "w"), _played("forward", products["forward"]))
    for kind in plan.kind.forward:
        step.add_vector_ops([VectorOp("layer", kind, "forward", outputs, after=1)])
    for kind in plan.kind.backward:
        step.add_vector_ops([VectorOp("layer", kind, "backward", outputs, after=1)])
    if "input_gradient" in products:
        step.add_product(TracedOp("layer", "input_grad", "dz", "w"), _played("input_grad", products["input_gradient"]))
    step.add_product(TracedOp("layer", "weight_grad", "dz", "x"), _played("weight_grad", products["weight_gradient"]))
    step.add_vector_ops(
        [VectorOp("layer", plan.vector_work.optimizer.program[0], "update", weights, after=len(products))]
    )
    time = step.time(sum(products.values()))
    return 0 if time is None else time.cycles


def _played(phase: str, cycles: int) -> OpResult:
    return OpResult("layer", phase, cycles, 0, 0, {}, 0, {})


def _through_memory(plan: StepPlan, device: DeviceSimulation, products: dict[str, int]) -> int:
    """Passes in order, each as long as its operations or its beats; updates of channels beside the gradients."""
    beats = plan.sizes.flit_bits // device.axi.data_bits
    schedule = StepSchedule()
    forward, *gradients = products.values()
    schedule.add(Job(forward, 0, is_product=True))
    for number, each in enumerate(plan.passes):
        if number == plan.first_descriptors:
            for cycles in gradients:
                schedule.add(Job(cycles, 0, is_product=True, waits=True))
        traits = TRAITS[each.program]
        takes, is_wide = traits.stream_takes, (each.x_is_wide, each.y_is_wide, each.second_x_is_wide)
        vectors = each.vectors * each.runs
        read = vectors * sum(count * (1 + wide) for count, wide in zip(takes, is_wide, strict=True))
        written = vectors * sum(traits.vector_flits)
        schedule.add(
            Job(
                max(len(PROGRAMS.programs[each.program]) * vectors, read * beats, written * beats),
                0,
                is_product=False,
                waits=True,
                feeds=number < plan.first_descriptors,
                follows_product=each.after_products == len(products),
            )
        )
    return schedule.cycles
