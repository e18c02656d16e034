"""Training a variant from a seed, with clock and energy meter running only while it trains."""

import gc
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
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


def train_variant(
    task: Task,
    variant: Variant,
    seed: int,
    length: RunLength,
    on_step: Callable[[float], None] = lambda share: None,
    log_folder: Path | None = None,
) -> TrainingRun:
    """Train ``variant`` from ``seed`` and measure the run; ``on_step`` hears the share that is done.

    ``log_folder``: for `acf watch`. The log is written at measurements of quality alone, with the clock stopped.
    """
    _free_memory()
    schedule, calibration = _schedule(task, variant, length)
    session = TrainingSession(task, variant, seed, schedule)
    with closing(session), _run_log(log_folder, session) as log:
        warm_up_seconds = session.warm_up()
        if session.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with EnergyMeter(session.device.type, synchronize=session.synchronize) as meter:
            curve = _train(session, meter, length.measurements, on_step, log)
        end = curve[-1]
        step_seconds = end.seconds / max(1, session.step - session.warm_up_steps)
        own_compile_seconds = session.compile_seconds(warm_up_seconds, step_seconds)
        return TrainingRun(
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


def _train(
    session: TrainingSession,
    meter: EnergyMeter,
    measurements: int,
    on_step: Callable[[float], None],
    log: RunLog | None,
) -> list[CurvePoint]:
    """Train to the end; quality on the way, with the clock stopped while it is measured."""
    clock, schedule = TrainingClock(session, meter), session.schedule
    curve: list[CurvePoint] = []
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
        on_step(float(part))
    return curve


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
