"""The tables of `acf bench training`."""

from dataclasses import replace
from io import StringIO
from math import nan

from rich.console import Console

from acf.bench.columns import training_tables
from acf.bench.training.record import TrainingComparison, Trial
from acf.bench.training.run import CurvePoint, RunLength, TrainingRun
from acf.bench.training.task import TASKS


def text(comparison: TrainingComparison) -> str:
    console = Console(width=140, record=True, file=StringIO())
    for table in training_tables(comparison):
        console.print(table)
    return console.export_text()


RUN = TrainingRun(
    variant="static-90/block=64",
    seed=0,
    steps=10,
    seconds=4.0,
    warm_up_seconds=1.0,
    step_ms=500.0,
    peak_gib=2.0,
    quality=80.0,
    sparsity=0.9,
    parameters=1,
    moves=0,
    joules=None,
    idle_watts=None,
    energy_source="",
    curve=(CurvePoint(10, 4.0, 80.0),),
    compile_seconds=21.0,
    rate=0.4,
)


def test_runs_that_diverged_are_said_in_the_place_of_their_quality() -> None:
    lost = replace(RUN, seed=1, quality=nan, curve=(CurvePoint(10, 4.0, nan),))
    some, all_of_them = (
        text(TrainingComparison(TASKS["small"], RunLength(epochs=1), True, [{}], runs))
        for runs in ([RUN, lost], [lost])
    )
    assert "1 of 2 diverged" in some
    assert "diverged" in all_of_them
    assert "nan" not in some + all_of_them


def test_compilation_has_its_column_and_a_best_rate_at_the_end_of_those_tried_is_said() -> None:
    run = RUN
    trials = [Trial(run.variant, rate, 0.1, quality, 10, 4.0, 0.0) for rate, quality in ((0.4, 80.0), (0.2, None))]
    comparison = TrainingComparison(TASKS["small"], RunLength(epochs=1), True, [{}], [run], trials, 0.5)
    shown = text(comparison)
    assert "with compilation" in shown
    assert "21.0" in shown
    assert "26.0" in shown
    assert "settings tried, 50% of a run each" in shown
    assert "diverged" in shown
    assert "a better one may lie beyond: static-90/block=64" in " ".join(shown.split())
    assert "settings tried" not in text(TrainingComparison(TASKS["small"], RunLength(), True, [{}], [run]))
