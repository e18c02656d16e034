"""Rows of the table from what a store holds."""

import pytest

from acf.bench.evaluation.rows import Spread, evaluation_table
from acf.bench.evaluation.run import MachineStep, SystemRun
from acf.bench.evaluation.store import EvaluationStore
from acf.bench.training.run import CurvePoint


def run(system: str, seed: int, seconds: float, quality: float, joules: float | None = 100.0) -> SystemRun:
    return SystemRun(
        system=system,
        seed=seed,
        steps=11,
        timed_steps=10,
        seconds=seconds,
        examples_per_step=20.0,
        compile_seconds=0.0,
        joules=joules,
        energy_source="a meter",
        peak_gib=0.0,
        sparsity=0.0,
        parameters=1,
        moves=0,
        metrics={"top-1 %": quality},
        curve=(CurvePoint(5, seconds / 2, 50.0), CurvePoint(11, seconds, quality)),
    )


def test_seeds_are_averaged_and_compared_with_the_first_system(store: EvaluationStore) -> None:
    for each in (run("dense", 0, 10.0, 80.0), run("dense", 1, 10.0, 90.0), run("rigl-90/block=64", 0, 5.0, 88.0, 40.0)):
        store.add_run(each)
    dense, sparse = evaluation_table(store, target=None).rows
    assert dense.metrics["top-1 %"] == Spread(85.0, pytest.approx(7.0710678), 2)
    assert (dense.speedup, sparse.speedup) == (1.0, 2.0)
    assert sparse.energy_ratio == pytest.approx(2.5)
    assert sparse.step_joules == Spread(4.0, 0.0, 1)
    assert dense.seconds_to_target is None, "one of its two runs stayed below the target"
    assert sparse.seconds_to_target == Spread(pytest.approx(2.5 + 35 / 38 * 2.5), 0.0, 1)


def test_energy_that_cannot_be_measured_is_said_so(store: EvaluationStore) -> None:
    store.add_run(run("dense", 0, 10.0, 80.0, None))
    table = evaluation_table(store, target=60.0)
    assert table.rows[0].step_joules is None
    assert "energy of this device: a meter" in table.notes


def test_simulated_machines_are_averaged_over_the_stages(store: EvaluationStore) -> None:
    store.add_run(run("dense", 0, 10.0, 80.0))
    for stage, seconds in (("start", 1.0), ("end", 0.5)):
        store.add_machine_step(MachineStep("dense", stage, "acf-512", 2.0, seconds, 4.0, 0.5))
    row = evaluation_table(store, None).rows[1]
    assert (row.machine, row.examples_per_s.mean, row.joules_per_example) == ("acf-512", 3.0, 2.0)
    assert row.utilization == Spread(0.5, 0.0, 2)
