"""Clock gates of units: a fabric whose units stop without work takes the cycles of one whose units never stop."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from acf.lowering import Stream
from acf.rtl.verify.lockstep.fabric_simulation import FabricSimulation
from acf.rtl.verify.lockstep.products import random_product
from acf.rtl.verify.lockstep.run import Lockstep, run_lockstep

SEEDS = range(24)


def _packets_of(stream: Stream, line: int) -> slice:
    return slice(int(stream.first[line]), int(stream.first[line + 1]))


def _flits_to(stream: Stream, line: int, place: int) -> int:
    """Flits of a line that the cluster at a place of it keeps."""
    own = _packets_of(stream, line)
    is_kept = stream.destinations[own] >> np.uint64(place) & np.uint64(1) > 0
    return int(stream.flits[own][is_kept].sum())


@pytest.fixture(scope="module")
def runs(gated_units: FabricSimulation) -> list[Lockstep]:
    return [run_lockstep(random_product(seed, tile=8, most=4), gated_units) for seed in SEEDS]


def test_units_that_stop_without_work_run_a_random_program_as_the_model_does(runs: list[Lockstep]) -> None:
    for seed, both in zip(SEEDS, runs, strict=True):
        assert both.divergence is None, f"seed {seed}: {both.divergence}"


def test_the_walker_of_an_scu_is_clocked_while_it_walks_and_when_a_tile_comes_and_never_else(
    runs: list[Lockstep], gated_units: FabricSimulation
) -> None:
    scus = gated_units.sizes.shape.scus_per_cluster
    for both in runs:
        events = both.model.events
        for scu, awake in enumerate(both.fabric.awake_cycles["SCU"]):
            walked = {
                cycle
                for begin, end in zip(events["begin"][scu], events["end"][scu], strict=True)
                for cycle in range(begin, end)
            }
            assert awake == len(walked | {time - 1 for time in events["serial_arrival"][scu // scus]})


def test_a_cluster_is_clocked_for_what_comes_ends_and_leaves_and_never_else(
    runs: list[Lockstep], gated_units: FabricSimulation
) -> None:
    sizes, columns = gated_units.sizes, gated_units.sizes.shape.mesh_columns
    passing = sizes.datapath_delay + sizes.shape.result_period_cycles + 6
    for both in runs:
        events, program = both.model.events, both.program
        for cluster, awake in enumerate(both.fabric.awake_cycles["cluster"]):
            row, column = divmod(cluster, columns)
            flits = _flits_to(program.rows, row, column) + _flits_to(program.columns, column, row)
            tiles, left = len(events["serial_arrival"][cluster]), len(events["leave"][cluster])
            ends = (1 + sizes.shape.scus_per_cluster) * tiles
            assert awake <= flits + ends + passing * left + len(events["empty"][cluster])


def test_a_controller_is_clocked_for_its_packets_and_credits_and_never_else(
    runs: list[Lockstep], gated_units: FabricSimulation
) -> None:
    shape = gated_units.sizes.shape
    for both in (run for run in runs if not run.program.reduces):
        program = both.program
        for line, awake in enumerate(both.fabric.awake_cycles["line"]):
            is_row = line < shape.mesh_rows
            stream = program.rows if is_row else program.columns
            own = _packets_of(stream, line if is_row else line - shape.mesh_rows)
            credits = int(np.bitwise_count(stream.destinations[own]).sum())
            assert awake <= 2 * int(stream.flits[own].sum()) + 5 * (own.stop - own.start) + credits


def test_a_fabric_without_work_is_never_clocked(runs: list[Lockstep]) -> None:
    empty = [both for both in runs if both.program.rows.packets == 0]
    assert empty
    for both in empty:
        assert not any(sum(cycles) for cycles in both.fabric.awake_cycles.values())


def test_a_fabric_that_gates_no_units_reports_none(four_scus: FabricSimulation) -> None:
    both = run_lockstep(replace(random_product(1, tile=8, most=4), stall_seed=None), four_scus)
    assert both.fabric.awake_cycles == {}
