"""One run of the benchmark: a variant trained from a seed, with what it took and what came out of it."""

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

import acf
from acf.bench.training.session import TrainingSession
from acf.bench.training.task import Task
from acf.bench.training.variant import Variant
from acf.metrics.meters import EnergyMeter

CALIBRATION_STEPS = 30
"""Steps of a throw-away session from which the number of steps of a timed run follows."""


@dataclass(frozen=True)
class RunLength:
    """How long a run is: ``epochs`` over the data, a number of ``steps``, or ``seconds`` of training; one of them."""

    epochs: float = 0.0
    steps: int = 0
    seconds: float = 0.0
    measurements: int = 12


@dataclass(frozen=True)
class CurvePoint:
    """Quality after ``step`` steps, which took ``seconds`` of training."""

    step: int
    seconds: float
    quality: float


@dataclass(frozen=True)
class TrainingRun:
    """One finished run.

    ``seconds`` is the training loop, moves and host included, without warm-up and the measurements of quality;
    ``warm_up_seconds`` is what the first steps took, nearly all of it compilation: a user waits for the sum.
    ``step_ms`` is ``seconds`` over the steps it covers. ``joules`` is of the loop with the measurements of quality in
    it, idle power included; ``peak_gib`` counts the allocator's memory.
    """

    variant: str
    seed: int
    steps: int
    seconds: float
    warm_up_seconds: float
    step_ms: float
    peak_gib: float
    quality: float
    sparsity: float
    parameters: int
    moves: int
    joules: float | None
    idle_watts: float | None
    energy_source: str
    curve: tuple[CurvePoint, ...] = field(default_factory=tuple)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainingRun":
        """Read what `to_dict` gave."""
        return cls(**{**values, "curve": tuple(CurvePoint(**point) for point in values["curve"])})

    def seconds_to(self, quality: float, higher_is_better: bool) -> float | None:
        """Seconds of training until ``quality`` was reached, between measurements by straight lines; None if never."""
        before: CurvePoint | None = None
        for point in self.curve:
            if point.quality >= quality if higher_is_better else point.quality <= quality:
                if before is None or point.quality == before.quality:
                    return point.seconds
                share = (quality - before.quality) / (point.quality - before.quality)
                return before.seconds + share * (point.seconds - before.seconds)
            before = point
        return None


def train_variant(
    task: Task, variant: Variant, seed: int, length: RunLength, on_step: Callable[[float], None] = lambda share: None
) -> TrainingRun:
    """Train ``variant`` from ``seed`` and measure the run; ``on_step`` hears the share that is done."""
    _free_memory()
    total_steps = _steps_of(task, variant, seed, length)
    session = TrainingSession(task, variant, seed, total_steps)
    try:
        warm_up_seconds = session.warm_up()
        if session.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with EnergyMeter(session.device.type, synchronize=session.synchronize) as meter:
            curve = _train(session, length.measurements, on_step)
        seconds = curve[-1].seconds
        return TrainingRun(
            variant=variant.name,
            seed=seed,
            steps=total_steps,
            seconds=seconds,
            warm_up_seconds=warm_up_seconds,
            step_ms=1e3 * seconds / max(1, total_steps - session.warm_up_steps),
            peak_gib=torch.cuda.max_memory_reserved() / 2**30 if session.device.type == "cuda" else 0.0,
            quality=curve[-1].quality,
            sparsity=acf.weight_sparsity(session.model),
            parameters=sum(parameter.numel() for parameter in session.model.parameters()),
            moves=session.moves,
            joules=meter.reading.joules,
            idle_watts=meter.reading.idle_watts,
            energy_source=meter.reading.source,
            curve=tuple(curve),
        )
    finally:
        session.close()


def _train(session: TrainingSession, measurements: int, on_step: Callable[[float], None]) -> list[CurvePoint]:
    """Train to the end; quality on the way, with the clock stopped while it is measured."""
    curve: list[CurvePoint] = []
    begin, seconds = session.step, 0.0
    stops = [begin + (session.total_steps - begin) * (index + 1) // measurements for index in range(measurements)]
    for stop in sorted(set(stops)):
        session.synchronize()
        started = time.perf_counter()
        while session.step < stop:
            session.train_step()
        session.synchronize()
        seconds += time.perf_counter() - started
        curve.append(CurvePoint(session.step, seconds, session.measure()))
        on_step(session.step / session.total_steps)
    return curve


def _steps_of(task: Task, variant: Variant, seed: int, length: RunLength) -> int:
    """The number of steps of a run; for a timed one from the step time of a throw-away session."""
    if not length.seconds:
        return length.steps or task.steps(length.epochs)
    session = TrainingSession(task, variant, seed, total_steps=10**6)
    try:
        session.warm_up()
        started = time.perf_counter()
        for _ in range(CALIBRATION_STEPS):
            session.train_step()
        session.synchronize()
        step_seconds = (time.perf_counter() - started) / CALIBRATION_STEPS
    finally:
        session.close()
    _free_memory()
    return max(session.warm_up_steps + 1, round(length.seconds / step_seconds))


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
