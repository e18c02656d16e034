"""The TensorDash scheduler in gates against the simulator's."""

import numpy as np
import pytest

from acf.lowering import PackedRows
from acf.rtl.design.accelerators.tensordash_scheduler import (
    NARROW,
    WIDE,
    ScheduleLogic,
    SchedulerSpec,
    TensorDashScheduler,
    fills_of,
    schedule,
)
from acf.rtl.tools.port_arrays import split_bits
from acf.sim.accelerators.moves import lane_levels
from acf.sim.accelerators.scheduler import drained_table, schedule_table, tile_cycles

SPECS = pytest.mark.parametrize("spec", [NARROW, WIDE], ids=["4 lanes, 4 deep", "16 lanes, 3 deep"])


def random_buffers(spec: SchedulerSpec, count: int) -> np.ndarray:
    """Staged bits at all densities."""
    generator = np.random.default_rng(0)
    bits = generator.random((count, spec.staged_bits)) < generator.random((count, 1))
    return (bits * (np.uint64(1) << np.arange(spec.staged_bits, dtype=np.uint64))).sum(axis=1, dtype=np.uint64)


def test_the_levels_are_the_papers() -> None:
    assert len(lane_levels(NARROW.lanes, NARROW.moves)) == 4
    assert len(lane_levels(WIDE.lanes, WIDE.moves)) == 6


def test_the_narrow_logic_equals_the_simulators_table_for_every_buffer(verilator: None) -> None:
    from acf.rtl.tools.simulation import Simulation

    staged = np.arange(1 << 16)
    outputs = Simulation(ScheduleLogic(NARROW), backend="verilator").run({"staged": staged})
    left = schedule_table(NARROW.lanes, NARROW.depth, NARROW.moves)
    np.testing.assert_array_equal(outputs["left"], left)
    np.testing.assert_array_equal(outputs["drained"], drained_table(NARROW.lanes, NARROW.depth)[left])


@SPECS
def test_every_choice_of_the_logic_is_the_models(simulate, spec: SchedulerSpec) -> None:
    simulation = simulate(ScheduleLogic(spec))
    staged = random_buffers(spec, 1_000 if simulation.backend == "verilator" else 60)
    outputs = simulation.run({"staged": staged})
    select = split_bits(outputs["select"], spec.select_bits, spec.lanes)
    taken = split_bits(outputs["taken"], 1, spec.lanes)
    for place, buffer in enumerate(staged.tolist()):
        expected = schedule(buffer, spec)
        chosen = [int(option) if takes else -1 for option, takes in zip(select[place], taken[place], strict=True)]
        assert (tuple(chosen), outputs["left"][place], outputs["drained"][place]) == (
            expected.options,
            expected.left,
            expected.drained,
        )


@SPECS
def test_a_row_takes_as_many_cycles_as_in_the_simulator(interpret, spec: SchedulerSpec) -> None:
    simulation, generator = interpret(TensorDashScheduler(spec)), np.random.default_rng(3)
    steps = 40
    for density in (0.1, 0.5, 0.9):
        effectual = generator.random((1, steps * spec.lanes)) < density
        rows = (effectual.reshape(steps, spec.lanes) << np.arange(spec.lanes)).sum(axis=1).tolist()
        fills = fills_of(rows, spec)
        cycles = len(fills) - 1
        expected = tile_cycles(PackedRows.from_bool(effectual), 1, spec.lanes, spec.depth, spec.moves)
        assert [cycles] == expected.tolist()
        load = np.arange(len(fills)) == 0
        outputs = simulation.run(
            {"fill": [fill for fill, _ in fills], "advance": [step for _, step in fills], "load": load, "enable": ~load}
        )
        assert outputs["drained"][1:].tolist() == [step for _, step in fills[1:]]
        assert split_bits(outputs["taken"][1:], 1, spec.lanes).sum() == effectual.sum()


def test_a_tile_that_holds_back_keeps_what_was_not_drained(simulate) -> None:
    outputs = simulate(TensorDashScheduler()).run(
        {
            "fill": [0b0001_0000, 0, 0xFFFF, 0xFFFF],
            "load": [1, 0, 0, 0],
            "enable": [0, 1, 0, 1],
            "advance": [0, 0, 1, 1],
        }
    )
    assert outputs["staged"].tolist() == [0, 0b0001_0000, 0, 0]
    assert outputs["drained"].tolist() == [4, 4, 4, 4]
