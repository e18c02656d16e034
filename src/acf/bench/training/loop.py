"""Training variants from a seed, alone or in turns, with clock and energy meter running only while they train."""

import gc
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

import acf
from acf.bench.training.run import CurvePoint, RunLength, TrainingRun
from acf.bench.training.schedule import ClockSchedule, Schedule, StepSchedule
from acf.bench.training.session import TrainingSession
from acf.bench.training.task import Task
from acf.bench.training.variant import Variant
from acf.metrics import RunLog
from acf.metrics.meters import EnergyMeter

CALIBRATION_STEPS = 30
"""Steps of a throw-away session that give a run of fixed time its first estimate of a step's time."""

COMPILED_PER_SESSION = 4
"""Versions of the compiled loss that one model may need."""


def unheard(share: float) -> None:
    """Nobody wants to know which share is done."""


def train_variant(
    task: Task,
    variant: Variant,
    seed: int,
    length: RunLength,
    on_step: Callable[[float], None] = unheard,
    log_folder: Path | None = None,
) -> TrainingRun:
    """Train ``variant`` from ``seed`` and measure the run; ``on_step`` hears the share that is done.

    ``log_folder``: for `acf watch`. The log is written at measurements of quality alone, with the clock stopped.
    """
    return train_in_turns(task, [Assignment(variant, on_step, log_folder)], seed, length)[0]


@dataclass(frozen=True)
class Assignment:
    """A variant to train; the rest is as for `train_variant`."""

    variant: Variant
    on_step: Callable[[float], None] = unheard
    log_folder: Path | None = None


def train_in_turns(task: Task, assignments: Sequence[Assignment], seed: int, length: RunLength) -> list[TrainingRun]:
    """Train several variants from ``seed``, each up to a measurement of quality, then the next, until all are done.

    All are compiled before the first one trains, and stay compiled until the last one has. So whatever else the machine
    does in the meantime slows all of them.
    """
    _free_memory()
    schedules = [_schedule(task, each.variant, length) for each in assignments]
    with ExitStack() as stack, _room_for_compiled(len(assignments), task):
        courses = [
            stack.enter_context(closing(_course(task, assignment, seed, length, *schedule)))
            for assignment, schedule in zip(assignments, schedules, strict=True)
        ]
        for _ in range(1 + length.measurements):  # the first turn ends when a variant is warmed up
            for course in courses:
                next(course)
        return [run for course in courses if (run := next(course)) is not None]


def _room_for_compiled(sessions: int, task: Task) -> AbstractContextManager[object]:
    """Let torch keep the compiled steps of that many models, one function to it; else the last ones run eagerly."""
    if not task.spec.is_compiled(task.device):
        return nullcontext()
    from torch._dynamo import config  # takes a second, which eager runs need not wait

    limit = max(config.recompile_limit, COMPILED_PER_SESSION * sessions)
    patched: AbstractContextManager[object] = config.patch(recompile_limit=limit)
    return patched


def _course(
    task: Task,
    assignment: Assignment,
    seed: int,
    length: RunLength,
    schedule: Schedule,
    calibration: "Calibration | None",
) -> Generator[TrainingRun | None]:
    """Yields when it is warmed up, after every part of the run, and at last the run; compiled code lives until then."""
    variant = assignment.variant
    session = TrainingSession(task, variant, seed, schedule)
    curve: list[CurvePoint] = []
    with closing(session):
        with _run_log(assignment.log_folder, session) as log:
            warm_up_seconds = session.warm_up()
            yield None
            if session.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            with EnergyMeter(session.device.type, synchronize=session.synchronize) as meter:
                for part in _parts(session, meter, length.measurements, curve, log):
                    assignment.on_step(part)
                    yield None
        end = curve[-1]
        step_seconds = end.seconds / max(1, session.step - session.warm_up_steps)
        own_compile_seconds = session.compile_seconds(warm_up_seconds, step_seconds)
        yield TrainingRun(
            variant=variant.name,
            seed=seed,
            steps=session.step,
            seconds=end.seconds,
            warm_up_seconds=warm_up_seconds,
            step_ms=1e3 * step_seconds,
            peak_gib=torch.cuda.max_memory_reserved() / 2**30 if session.device.type == "cuda" else 0.0,
            quality=end.quality,
            sparsity=acf.weight_sparsity(session.model),
            parameters=sum(parameter.numel() for parameter in session.model.parameters()),
            moves=session.moves,
            joules=end.joules,
            idle_watts=meter.reading.idle_watts,
            energy_source=meter.reading.source,
            curve=tuple(curve),
            compile_seconds=max(own_compile_seconds, calibration.compile_seconds if calibration else 0.0),
            rate=session.sizes.rate,
            weight_decay=session.sizes.weight_decay,
            planned_speedup=session.plan.speedup if session.plan else None,
            checked_speedup=session.plan.measured_speedup if session.plan else None,
            fused_norms=session.fused_norms,
            planned_layers=session.plan.layers if session.plan else (),
        )


def _run_log(folder: Path | None, session: TrainingSession) -> AbstractContextManager[RunLog | None]:
    return nullcontext() if folder is None else RunLog(folder, session.model, session.schedule.total_steps)


class Synchronized(Protocol):
    """Something that runs on a device and can be waited for."""

    def synchronize(self) -> None:
        """Wait for the device."""


class TrainingClock:
    """Seconds and joules of the stretches between `start` and `stop`; what lies between stretches is not counted.

    A board's energy counter advances a few tens of times per second, so a stretch much shorter than a second has
    joules of low precision.
    """

    def __init__(self, session: Synchronized, meter: EnergyMeter) -> None:
        self._session, self._meter = session, meter
        self.seconds = 0.0
        self.joules: float | None = 0.0
        self._started_seconds, self._started_joules = 0.0, meter.joules_so_far()

    def start(self) -> None:
        """A stretch begins."""
        self._session.synchronize()
        self._started_joules = self._meter.joules_so_far()
        self._started_seconds = time.perf_counter() - self.seconds

    def read(self) -> float:
        """Wait for the device; the seconds so far."""
        self._session.synchronize()
        self.seconds = time.perf_counter() - self._started_seconds
        return self.seconds

    def stop(self) -> None:
        """The stretch ends."""
        self.read()
        now, before = self._meter.joules_so_far(), self._started_joules
        known = now is not None and before is not None and self.joules is not None
        self.joules = self.joules + now - before if known else None  # type: ignore[operator]


def _parts(
    session: TrainingSession, meter: EnergyMeter, measurements: int, curve: list[CurvePoint], log: RunLog | None
) -> Generator[float]:
    """Train part by part, and yield the share that is done; ``curve`` gets the quality after each.

    The clock stands while quality is measured and between parts.
    """
    clock, schedule = TrainingClock(session, meter), session.schedule
    schedule.start(session.step)
    for index in range(measurements):
        part, before = Fraction(index + 1, measurements), session.step
        clock.start()
        while (steps := schedule.steps_until(part, session.step)) > 0:
            for _ in range(steps):
                loss = session.train_step()
            schedule.read_clock(session.step, clock.read())
        clock.stop()
        if session.step > before:
            curve.append(CurvePoint(session.step, clock.seconds, session.measure(), clock.joules))
            if log is not None:
                _write_log(log, session, loss, curve[-1].quality)
        yield float(part)


def _write_log(log: RunLog, session: TrainingSession, loss: Tensor, quality: float) -> None:
    log.step(session.step, loss, quality=quality)
    if session.topology is not None:
        log(session.step, session.topology.figures())


@dataclass(frozen=True)
class Calibration:
    """A step's seconds, and what compiling took, in a session that was thrown away."""

    step_seconds: float
    compile_seconds: float


def _schedule(task: Task, variant: Variant, length: RunLength) -> tuple[Schedule, Calibration | None]:
    """The course of a run of ``length``; a timed one needs an estimate of the step time."""
    if not length.seconds:
        return StepSchedule(length.steps or task.steps(length.epochs, variant.sizes(task.spec).batch)), None
    key = (replace(variant.sizes(task.spec), rate=0.0, weight_decay=0.0), variant.name, str(task.device))
    if key not in _CALIBRATIONS:
        _CALIBRATIONS[key] = _calibrate(task, variant)
    return ClockSchedule(length.seconds, _CALIBRATIONS[key].step_seconds), _CALIBRATIONS[key]


def _calibrate(task: Task, variant: Variant) -> Calibration:
    session = TrainingSession(task, variant, 0, StepSchedule(10**6))
    try:
        warm_up_seconds = session.warm_up()
        started = time.perf_counter()
        for _ in range(CALIBRATION_STEPS):
            session.train_step()
        session.synchronize()
        step_seconds = (time.perf_counter() - started) / CALIBRATION_STEPS
        return Calibration(step_seconds, session.compile_seconds(warm_up_seconds, step_seconds))
    finally:
        session.close()
        del session
        _free_memory()


_CALIBRATIONS: dict[tuple[object, ...], Calibration] = {}


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
