"""Runs on a CPU whose clock and meter advance with the steps: the curve, and runs of fixed time."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch._dynamo import config as dynamo_config

from acf.bench.training import loop
from acf.bench.training.loop import Assignment, train_in_turns, train_variant
from acf.bench.training.run import RunLength
from acf.bench.training.task import Task
from acf.bench.training.variant import Variant
from acf.metrics import meters
from acf.metrics.run_history import RunReader


@dataclass
class Machine:
    """Seconds pass only by what is done; every second takes 100 J."""

    seconds: float = 0.0

    def taking(self, seconds: float, does: Callable[..., object]) -> Callable[..., object]:
        def done(*args: object) -> object:
            self.seconds += seconds
            return does(*args)

        return done


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A step takes a second, a measurement of quality 50 seconds."""
    made = Machine()
    monkeypatch.setattr(loop.time, "perf_counter", lambda: made.seconds)
    monkeypatch.setattr(meters.time, "sleep", made.taking(1.0, lambda seconds: None))
    monkeypatch.setattr(meters, "_rapl_counter", lambda: (lambda: 100.0 * made.seconds, "counter"))
    monkeypatch.setattr(loop.TrainingSession, "train_step", made.taking(1.0, loop.TrainingSession.train_step))
    monkeypatch.setattr(loop.TrainingSession, "measure", made.taking(50.0, loop.TrainingSession.measure))
    return made


def test_the_curve_has_seconds_joules_and_quality_without_the_time_of_measuring(text_task: Task) -> None:
    run = train_variant(text_task, Variant.parse("dense"), 0, RunLength(steps=5, measurements=2))
    assert [(point.step, point.seconds, point.joules) for point in run.curve] == [(3, 2.0, 200.0), (5, 4.0, 400.0)]
    assert (run.seconds, run.joules, run.step_ms, run.idle_watts) == (4.0, 400.0, 1e3, 100.0)
    assert (run.warm_up_seconds, run.compile_seconds) == (1.0, 0.0)
    assert run.curve[-1].quality < run.curve[0].quality


def test_a_run_can_be_watched_at_its_measurements_and_its_clock_does_not_notice(
    text_task: Task, tmp_path: Path
) -> None:
    length = RunLength(steps=5, measurements=2)
    run = train_variant(text_task, Variant.parse("dense"), 0, length, log_folder=tmp_path)
    history = RunReader(tmp_path).update()
    assert [(point.step, point.measured["quality"]) for point in history.steps] == [
        (point.step, point.quality) for point in run.curve
    ]
    assert (history.state, run.seconds) == ("finished", 4.0)


def test_a_run_of_fixed_time_ends_with_it(text_task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CALIBRATION_STEPS", 2)
    length = RunLength(seconds=6.0, measurements=3)
    run = train_variant(text_task, Variant.parse("static-50/block=32/batch=1"), 0, length)
    assert [point.seconds for point in run.curve] == [2.0, 4.0, 6.0]
    assert run.steps == 1 + 6  # one step warms up, six fill the time
    before = len(loop._CALIBRATIONS)
    again = train_variant(text_task, Variant.parse("static-50/block=32/batch=1"), 1, length)
    assert (again.steps, len(loop._CALIBRATIONS)) == (run.steps, before)


def test_variants_in_turns_train_from_measurement_to_measurement_and_as_they_would_alone(
    text_task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, int]] = []
    measure = loop.TrainingSession.measure
    monkeypatch.setattr(
        loop.TrainingSession,
        "measure",
        lambda session: (order.append((session.variant.name, session.step)), measure(session))[1],
    )
    length, names = RunLength(steps=5, measurements=2), ("dense", "rigl-50/block=32/moves=2")
    together = train_in_turns(text_task, [Assignment(Variant.parse(name)) for name in names], 0, length)
    assert order == [(name, step) for step in (3, 5) for name in names]
    assert [run.seconds for run in together] == [4.0, 4.0]
    alone = [train_variant(text_task, Variant.parse(name), 0, length) for name in names]
    assert [run.curve for run in together] == [run.curve for run in alone]
    assert [run.moves for run in together] == [run.moves for run in alone]
    assert together[1].moves > 0


def test_as_many_models_as_train_in_turns_stay_compiled(text_task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    text_task.spec = replace(text_task.spec, compiled=True)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    assignments = [Assignment(Variant.parse(f"dense/width={width}/head_width=32")) for width in (32, 64, 96)]
    with dynamo_config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True):
        runs = train_in_turns(text_task, assignments, 0, RunLength(steps=4, measurements=2))
    assert [run.steps for run in runs] == [4, 4, 4]


def test_compilation_is_what_the_warm_up_takes_beyond_its_steps(
    text_task: Task, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling = machine.taking(30.0, lambda session: None)
    step = loop.TrainingSession.train_step
    monkeypatch.setattr(
        loop.TrainingSession, "train_step", lambda session: (session.step == 0 and compiling(session), step(session))
    )
    run = train_variant(text_task, Variant.parse("dense"), 0, RunLength(steps=3, measurements=1))
    assert (run.warm_up_seconds, run.compile_seconds, run.seconds) == (31.0, 30.0, 2.0)


def test_a_run_counts_the_batch_norms_that_are_fused_with_sparse_convolutions(image_task: Task) -> None:
    length = RunLength(steps=1, measurements=1)
    runs = [train_variant(image_task, Variant.parse(name), 0, length) for name in ("dense", "static-50/block=16")]
    assert [run.fused_norms for run in runs] == [0, 3]
