"""A step on a device in simulation: load it, start both queues, and read back what it left."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.device.host.image import read_output
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.registers import ERRORS
from acf.rtl.device.step.layer import StepSizes, StepState
from acf.rtl.device.step.plan import StepPlan
from acf.rtl.device.step.reference import StepResult, input_constants, update_constants
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
    """A device with a vector unit, and memory that holds the step."""
    beats = 1 << (plan.end // axi.beat_bytes - 1).bit_length()
    return DeviceSimulation.of(plan.sizes, axi, beats, latency_cycles, backend, plan.walker, vector="transformer")


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
    tile, link = plan.sizes.shape.tile, plan.sizes.shape.link_bytes
    target = state.target ^ np.uint16(0x8000)  # the loss's gradient is y - target
    contents = {
        "x": _tiled(state.x, tile).tobytes(),
        "target": _tiled(target, tile).swapaxes(0, 1).tobytes(),
        "update_constants": update_constants(sizes, tile).tobytes(),
        "descriptors": b"".join(each.content() for each in plan.descriptors),
    }
    for name, values in (("weight", state.weight), ("master", state.master), ("momentum", state.momentum)):
        blocks = _tiled(values, tile)
        contents[name] = b"".join(blocks[place].tobytes() for place in plan.blocks)
    groups = state.channels.reshape(4, -1, tile).swapaxes(0, 1)
    contents["input_constants"] = b"".join(input_constants(sizes, *group[:2]).tobytes() for group in groups)
    contents["channel_momentum"] = b"".join(group[2:].tobytes() for group in groups)
    counts = np.zeros((len(groups), 8, tile), dtype=np.float32)
    counts[:, 0] = -1 / sizes.tokens
    contents["channel_constants"] = counts.tobytes()
    for name, content in (contents | dict(plan.contents)).items():
        device.load(plan.regions[name].base * link, content)
    for image in plan.images.values():
        device.load(image.segments[0].base, image.segments[0].content)


def read_step(device: DeviceSimulation, plan: StepPlan, state: StepState) -> StepResult:
    """What a step has left in memory."""
    tile, link = plan.sizes.shape.tile, plan.sizes.shape.link_bytes

    def region(name: str, kind: str) -> NDArray[Any]:
        place = plan.regions[name]
        content = device.peek(place.base * link, (place.end - place.base) * link)
        return np.frombuffer(content, dtype=kind)

    def activation(name: str) -> NDArray[Any]:
        rows = state.x.shape[0] // tile
        tiles = region(name, "<u2").reshape(-1, rows, tile, tile)  # column of tiles, row of tiles
        return np.ascontiguousarray(tiles.transpose(1, 2, 0, 3)).reshape(rows * tile, -1)

    def weights(name: str, kind: str) -> NDArray[Any]:
        whole = np.zeros((state.kept.shape[0], tile, state.kept.shape[1], tile), dtype=kind)
        for place, block in zip(plan.blocks, region(name, kind).reshape(-1, tile, tile), strict=True):
            whole[place[0], :, place[1]] = block
        return whole.reshape(state.master.shape)

    values = region("input_constants", "<f4").reshape(-1, 5, tile)[:, 2:4]
    momenta = region("channel_momentum", "<f4").reshape(-1, 2, tile)
    channels = np.concatenate([values, momenta], axis=1).swapaxes(0, 1).reshape(4, -1)
    dx = state.x[:0]
    if "input_gradient" in plan.images:
        left = read_output(plan.images["input_gradient"], plan.programs["input_gradient"], device.peek)
        dx = bf16_bits(left.view(np.float32))
    return StepResult(
        dx=dx,
        y=activation("y"),
        dz=activation("dz"),
        weight=weights("weight", "<u2"),
        master=weights("master", "<f4"),
        momentum=weights("momentum", "<f4"),
        channels=np.ascontiguousarray(channels),
    )


def _tiled(values: NDArray[Any], tile: int) -> NDArray[Any]:
    """``[row tiles, column tiles, tile, tile]`` of a matrix."""
    return values.reshape(values.shape[0] // tile, tile, -1, tile).swapaxes(1, 2)
