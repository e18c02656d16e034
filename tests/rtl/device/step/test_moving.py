"""Topology updates in gates: the device moves blocks, writes the new index, and the next step walks it."""

from dataclasses import replace

import numpy as np
import pytest

from acf.errors import RtlError
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.step.layer import StepSizes, StepState, random_step
from acf.rtl.device.step.moving import moved_step, plan_moving_step, run_moving_steps
from acf.rtl.device.step.reference import reference_step
from acf.rtl.device.step.run import run_step
from tests.rtl.device.programs import VECTOR_AXI, VECTOR_SIZES

FABRIC: FabricSizes = replace(VECTOR_SIZES, memory_flits=1 << 14)
LAYER = StepSizes(tokens=16, inputs=24, outputs=16, seed=1)


def with_blocks(state: StepState, kept: list[list[int]]) -> StepState:
    """The same state with other blocks; new ones are zero."""
    mask = np.array(kept, dtype=bool)
    values = np.kron(mask, np.ones((8, 8), dtype=bool))
    return replace(state, kept=mask, master=state.master * values, momentum=state.momentum * values)


def test_steps_walk_the_index_that_the_device_wrote_when_it_moved_blocks(vector_device: DeviceSimulation) -> None:
    state = random_step(LAYER, 8)
    plan = plan_moving_step(state, FABRIC, VECTOR_AXI, moves=1)
    first, second = run_moving_steps(vector_device, plan, state, LAYER)
    assert (first.differences, second.differences) == ([], [])
    assert len(first.record()["moved"]) == 1
    assert second.plan.blocks == first.blocks


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
