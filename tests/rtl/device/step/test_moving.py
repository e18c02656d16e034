"""Topology updates in gates: the device moves blocks, writes the new index, and the next step walks it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.lowering.descriptor import DESCRIPTOR_BYTES, ProductDescriptor
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.host.descriptor_image import walking_registers
from acf.rtl.device.host.image import read_output
from acf.rtl.device.host.placed_product import page_of
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.step.layer import StepSizes, StepState, random_step
from acf.rtl.device.step.moving import MovingLayer, moved_step, plan_moving_step, present_gradient, run_moving_steps
from acf.rtl.device.step.plan import StepPlan
from acf.rtl.device.step.reference import reference_step, weight_gradient_of
from acf.rtl.device.step.run import run_step
from tests.rtl.device.programs import VECTOR_AXI, VECTOR_SIZES

FABRIC: FabricSizes = replace(VECTOR_SIZES, memory_flits=1 << 14)
LAYER = StepSizes(tokens=16, inputs=24, outputs=16, seed=1)
DONE, VECTOR_WORK = 1, 16


def with_blocks(state: StepState, kept: list[list[int]]) -> StepState:
    """The same state with other blocks; new ones are zero."""
    mask = np.array(kept, dtype=bool)
    values = np.kron(mask, np.ones((8, 8), dtype=bool))
    return replace(state, kept=mask, master=state.master * values, moments=state.moments * values)


def test_steps_walk_the_index_that_the_device_wrote_when_it_moved_blocks(vector_device: DeviceSimulation) -> None:
    state = random_step(LAYER, 8)
    plan = plan_moving_step(state, FABRIC, VECTOR_AXI, moves=1)
    first, second = run_moving_steps(vector_device, plan, state, LAYER)
    assert (first.differences, second.differences) == ([], [])
    assert len(first.record()["moved"]) == 1
    assert second.plan.blocks == first.blocks
    for name in ("forward", "input_gradient"):  # by rows of blocks and by columns: both are written anew
        before, after = (each.plan.images[name].segments[0].content for each in (first, second))
        assert before != after


def test_a_split_k_weight_gradient_is_walked_from_the_list_that_the_device_wrote(
    vector_device: DeviceSimulation,
) -> None:
    state = random_step(LAYER, 8)
    plan = plan_moving_step(state, FABRIC, VECTOR_AXI, moves=1, moving=MovingLayer(LAYER, "split-K"))
    (step,) = run_moving_steps(vector_device, plan, state, LAYER, steps=1)
    assert step.differences == []
    expected = reference_step(state, LAYER, plan)
    after, _ = moved_step(state, plan, expected, 1)
    assert (after.kept != state.kept).any()
    program, image = present_gradient(plan, after.kept)
    vector_device.write_registers(image.registers)
    wait(vector_device, lambda status: bool(status & DONE))
    found = read_output(image, program, vector_device.peek)
    blocks = np.kron(after.kept, np.ones((8, 8), dtype=bool))
    gradient = weight_gradient_of(state, plan, expected.dz).view(np.uint32)
    assert (found == np.where(blocks, gradient, 0)).all()
    old_program, old_image = present_gradient(plan, state.kept)  # the same memory, read as the topology before
    assert (read_output(old_image, old_program, vector_device.peek) != found).any()


@pytest.mark.parametrize(
    ("passes", "optimizer", "dataflow", "seed"),
    [
        ("transformer", "adam", "output-stationary", 1),
        ("transformer", "sgd", "output-stationary", 1),
        ("cnn", "adam", "split-K", 4),
    ],
)
def test_blocks_move_at_the_end_of_steps_with_other_passes_and_optimizers(
    vector_device: DeviceSimulation, passes: str, optimizer: str, dataflow: str, seed: int
) -> None:
    sizes = replace(LAYER, tokens=8, passes=passes, optimizer=optimizer, learning_rate=0.001, seed=seed)
    state = random_step(sizes, 8)
    plan = plan_moving_step(state, FABRIC, VECTOR_AXI, moves=1, moving=MovingLayer(sizes, dataflow))
    steps = run_moving_steps(vector_device, plan, state, sizes)
    first = next(steps)
    assert first.differences == []
    ((slot, grown),) = first.record()["moved"].items()
    assert not state.kept[grown]
    for name in ("weight", "master", "moments"):  # the weight and all state of the optimizer begin at zero
        region = plan.regions[name]
        assert not any(vector_device.peek(region[slot] * 16, region.flits * 16))
    assert plan.regions["moments"].flits == 16 * len(state.moments) == (32 if optimizer == "adam" else 16)
    assert next(steps).differences == []


def wait(device: DeviceSimulation, is_over: Callable[[int], bool]) -> None:
    for _ in range(20_000):
        device.run_for(8)
        if is_over(device.read_register("status")):
            return
    raise AssertionError("the device is not done")


def forward(device: DeviceSimulation, plan: StepPlan, place: int = -1) -> NDArray[np.uint32]:
    """Run the forward product whose descriptor is at byte ``place``, else the plan's, by the index in memory."""
    image = plan.images["forward"]
    device.write_registers(image.registers if place < 0 else walking_registers(place))
    wait(device, lambda status: bool(status & DONE) and not status & VECTOR_WORK)
    return read_output(image, plan.programs["forward"], device.peek)


def forward_behind_a_step(device: DeviceSimulation, plan: StepPlan, fresh_index: bool) -> NDArray[np.uint32]:
    """Run a step, and start the forward product of the next one while blocks are still to be moved.

    Moved blocks keep their weights, or neither the old nor the new ones would add anything to the product.
    """
    keeps = replace(plan.descriptors[-1], weight=plan.regions["masked"].base)
    end = plan.regions["descriptors"].end * plan.sizes.shape.link_bytes
    device.load(end - len(keeps.content()), keeps.content())
    before = device.peek(plan.images["forward"].segments[0].base, DESCRIPTOR_BYTES)
    described = ProductDescriptor.from_words(np.frombuffer(before, dtype="<u4").tolist())
    described = replace(described, fresh_index=fresh_index, after_vectors=len(plan.descriptors))
    place = page_of(plan.end)
    device.load(place, np.array(described.words(), dtype="<u4").tobytes())
    device.reset()
    device.write_register("vector_page", plan.list_page)
    device.write_register("vector_count", len(plan.descriptors))
    for image in plan.images.values():
        device.write_registers(image.registers)
        wait(device, lambda status: bool(status & DONE))
    assert device.read_register("status") & VECTOR_WORK
    return forward(device, plan, place)


def test_a_product_with_a_fresh_index_takes_the_topology_that_an_update_before_it_makes(
    vector_device: DeviceSimulation,
) -> None:
    state = random_step(LAYER, 8)
    plan = plan_moving_step(state, FABRIC, VECTOR_AXI, moves=1)
    differs = {}
    for fresh_index in (True, False):
        run_step(vector_device, plan, state, LAYER)
        output = forward_behind_a_step(vector_device, plan, fresh_index)
        differs[fresh_index] = (output != forward(vector_device, plan)).any()
    assert differs == {True: False, False: True}  # without, it walks the index that lay there when it was started


def test_an_update_that_would_empty_a_row_or_column_fails_and_writes_nothing(vector_device: DeviceSimulation) -> None:
    sizes = replace(LAYER, inputs=16)
    state = with_blocks(random_step(sizes, 8), [[1, 0], [0, 1]])
    plan = plan_moving_step(state, FABRIC, VECTOR_AXI, moves=1)
    with pytest.raises(RtlError, match="vector work could not be read, begun or run"):
        run_step(vector_device, plan, state, sizes)
    for image in plan.images.values():
        segment = image.segments[0]
        assert vector_device.peek(segment.base, len(segment.content)) == segment.content
    with pytest.raises(RtlError, match="of blocks would be empty"):
        moved_step(state, plan, reference_step(state, sizes, plan), 1)


def test_blocks_of_another_topology_are_refused() -> None:
    state = random_step(LAYER, 8)
    with pytest.raises(RtlError, match="not those that its state keeps"):
        plan_moving_step(state, FABRIC, VECTOR_AXI, 1, [(0, 0)])
    empty = with_blocks(state, [[1, 0], [1, 0], [1, 0]])
    with pytest.raises(RtlError, match="a column of blocks is empty"):
        plan_moving_step(empty, FABRIC, VECTOR_AXI, 1)
    with pytest.raises(RtlError, match="moves 5 must be at least 1 and at most"):
        plan_moving_step(state, FABRIC, VECTOR_AXI, 5)
