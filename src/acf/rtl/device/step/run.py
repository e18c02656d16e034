"""A step on a device in simulation: load it, start both queues, and read back what it left."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.vector.registry import PROGRAM_SETS
from acf.rtl.device.host.image import read_output
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.registers import ERRORS
from acf.rtl.device.step.layer import StepSizes, StepState
from acf.rtl.device.step.plan import StepPlan
from acf.rtl.device.step.reference import StepResult
from acf.rtl.device.vector.descriptor import PROGRAMS

_DONE, _VECTOR_WORK = 1, 16


@dataclass(frozen=True, eq=False)
class StepRun:
    """``cycles`` from the first register write until all is in memory, and what lies there then.

    ``product_cycles``: by product. ``vector_cycles``: those in which the vector unit's lanes worked.
    """

    cycles: int
    product_cycles: dict[str, int]
    vector_cycles: int
    result: StepResult

    def record(self, plan: StepPlan) -> dict[str, Any]:
        """The figures as plain values."""
        names = ("cycles", "product_cycles", "vector_cycles")
        operations = [len(PROGRAMS.programs[each.program]) * each.vectors * each.runs for each in plan.passes]
        counts = {"descriptors": len(plan.descriptors), "commands": _commands(plan), "operations": operations}
        return {name: getattr(self, name) for name in names} | counts


def step_text(run: StepRun, plan: StepPlan) -> str:
    """The run in a sentence."""
    products = ", ".join(f"{name.replace('_', ' ')} {cycles}" for name, cycles in run.product_cycles.items())
    made_by = "made by the device" if plan.walker else "sent by the host"
    return (
        f"{run.cycles} cycles: {products}, lanes work in {run.vector_cycles}; {_commands(plan)} commands {made_by}, "
        f"{len(plan.descriptors)} vector descriptors"
    )


def _commands(plan: StepPlan) -> int:
    return sum(len(line) for each in plan.programs.values() for line in each.commands)


def device_for_step(plan: StepPlan, axi: AxiSpec, latency_cycles: int = 50, backend: str = "auto") -> DeviceSimulation:
    """A device whose vector unit has the programs of the step, and memory that holds it."""
    used = {each.program for each in plan.passes}
    programs = next(name for name, each in PROGRAM_SETS.items() if used <= each.programs.keys())
    beats = 1 << (plan.end // axi.beat_bytes - 1).bit_length()
    return DeviceSimulation.of(plan.sizes, axi, beats, latency_cycles, backend, plan.walker, vector=programs)


def run_step(device: DeviceSimulation, plan: StepPlan, state: StepState, sizes: StepSizes) -> StepRun:
    """Run a step from the device's initial state."""
    device.simulation.restart()
    _load(device, plan, state, sizes)
    return resume_step(device, plan, state)


def resume_step(device: DeviceSimulation, plan: StepPlan, state: StepState) -> StepRun:
    """Run a step over what lies in memory; ``plan`` and ``state`` say where its results are, and nothing is loaded."""
    begin = device.cycles
    device.write_register("vector_page", plan.list_page)
    device.write_register("vector_count", len(plan.descriptors))
    products = {}
    for name, image in plan.images.items():
        if plan.walker is None:
            device.write_register("after_vectors", 0 if name == "forward" else plan.first_descriptors)
        device.write_registers(image.registers)
        _wait(device, lambda status: bool(status & _DONE))
        products[name] = device.read_register("cycles")
    _wait(device, lambda status: not status & _VECTOR_WORK)
    cycles = device.cycles - begin
    return StepRun(cycles, products, device.read_register("vector_cycles"), read_step(device, plan, state))


def _wait(device: DeviceSimulation, is_over: Callable[[int], bool], most_cycles: int = 1_000_000) -> None:
    """Poll the status."""
    begin = device.cycles
    while device.cycles - begin < most_cycles:
        device.run_for(8)
        error = device.read_register("error")
        if error:
            seen = [text for bit, text in enumerate(ERRORS.values()) if error >> bit & 1]
            raise RtlError(f"the device reports: {'; '.join(seen)}; check the plan of the step")
        if is_over(device.read_register("status")):
            return
    raise RtlError(f"the step is not done after {most_cycles} cycles; give it more, or look for a wait without an end")


def _load(device: DeviceSimulation, plan: StepPlan, state: StepState, sizes: StepSizes) -> None:
    """Operands, optimizer state, constants, commands and descriptors."""
    tile, link, work = plan.sizes.shape.tile, plan.sizes.shape.link_bytes, plan.vector_work
    contents = {
        "x": _tiled(state.x, tile).tobytes(),
        "descriptors": b"".join(each.content() for each in plan.descriptors),
        **work.contents(state, sizes),
    }
    for name, values in (("weight", state.weight), ("master", state.master)):
        blocks = _tiled(values, tile)
        contents[name] = b"".join(blocks[place].tobytes() for place in plan.blocks)
    # The moments of a row of a block lie one behind another.
    moments = np.stack([_tiled(each, tile) for each in state.moments], axis=3)
    contents["moments"] = b"".join(moments[place].tobytes() for place in plan.blocks)
    for name, content in (contents | dict(plan.contents)).items():
        device.load(plan.regions[name].base * link, content)
    for image in plan.images.values():
        device.load(image.segments[0].base, image.segments[0].content)
    load_update_constants(device, plan, sizes)


def load_update_constants(device: DeviceSimulation, plan: StepPlan, sizes: StepSizes) -> None:
    """What the host writes before every step: Adam's constants change with its number."""
    shape = plan.sizes.shape
    constants = plan.vector_work.optimizer.lane_constants(sizes, shape.tile)
    device.load(plan.regions["update_constants"].base * shape.link_bytes, constants.tobytes())


def read_step(device: DeviceSimulation, plan: StepPlan, state: StepState) -> StepResult:
    """What a step has left in memory."""
    tile, link, work = plan.sizes.shape.tile, plan.sizes.shape.link_bytes, plan.vector_work

    def region(name: str, kind: str) -> NDArray[Any]:
        place = plan.regions[name]
        content = device.peek(place.base * link, (place.end - place.base) * link)
        return np.frombuffer(content, dtype=kind)

    def weights(name: str, kind: str, count: int = 1) -> NDArray[Any]:
        """``[count, inputs, outputs]``: numbers of a row of a block lie one behind another."""
        whole = np.zeros((count, state.kept.shape[0], tile, state.kept.shape[1], tile), dtype=kind)
        for place, block in zip(plan.blocks, region(name, kind).reshape(-1, tile, count, tile), strict=True):
            whole[:, place[0], :, place[1]] = block.swapaxes(0, 1)
        return whole.reshape(count, *state.master.shape)

    def floats(name: str) -> NDArray[Any]:
        return region(name, "<f4")

    dx = state.x[:0]
    if "input_gradient" in plan.images:
        left = read_output(plan.images["input_gradient"], plan.programs["input_gradient"], device.peek)
        dx = bf16_bits(left.view(np.float32))
    return StepResult(
        dx=dx,
        y=work.activation_values(region("y", "<u2")),
        dz=work.activation_values(region("dz", "<u2")),
        weight=weights("weight", "<u2")[0],
        master=weights("master", "<f4")[0],
        moments=weights("moments", "<f4", work.optimizer.moments),
        channels=work.read_channels(floats),
        loss=work.read_loss(floats),
    )


def _tiled(values: NDArray[Any], tile: int) -> NDArray[Any]:
    """``[row tiles, column tiles, tile, tile]`` of a matrix."""
    return values.reshape(values.shape[0] // tile, tile, -1, tile).swapaxes(1, 2)
