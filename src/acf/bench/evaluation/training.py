"""Training one system from one seed, with checkpoints on the way, into an `EvaluationStore`."""

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from acf.bench.evaluation.density import Densities, gradient_densities
from acf.bench.evaluation.run import STAGES, START_DIVISOR, LossPoint, SystemRun
from acf.bench.evaluation.session import EvaluationSession
from acf.bench.evaluation.store import EvaluationStore
from acf.bench.evaluation.systems import System
from acf.bench.evaluation.task import EvaluationTask
from acf.bench.training.loop import TrainingClock
from acf.bench.training.run import CurvePoint, without_nan
from acf.errors import DataError
from acf.metrics.meters import EnergyMeter
from acf.schema import read_as

OnStep = Callable[[float], None]
SEVERAL_METERS = "not measured: several processes trained"


@dataclass(frozen=True)
class RunPlan:
    """How a run goes: its ``steps``, how often quality is measured, steps between checkpoints, examples of traces.

    With ``captured`` 0 nothing is traced. ``idle_seconds`` is how long the meter of energy
    watches the idle device first.
    """

    steps: int
    measurements: int
    checkpoint_every: int
    captured: int = 0
    idle_seconds: float = 1.0

    def measured_steps(self) -> list[int]:
        """Steps after which quality is measured, the last among them."""
        return sorted({max(1, self.steps * (each + 1) // self.measurements) for each in range(self.measurements)})

    def stage_steps(self) -> dict[str, int]:
        """Steps before the trace of each stage."""
        return dict(zip(STAGES, (self.steps // START_DIVISOR, self.steps // 2, self.steps), strict=True))

    def stops(self) -> list[int]:
        """Steps at which training pauses for any of these."""
        checkpoints = range(self.checkpoint_every, self.steps, self.checkpoint_every)
        traced = [step for step in self.stage_steps().values() if step] if self.captured else []
        return sorted({*checkpoints, *self.measured_steps(), *traced})


@dataclass
class RunProgress:
    """What has been measured so far; it is saved with every checkpoint."""

    seconds: float = 0.0
    joules: float | None = 0.0
    timed_steps: int = 0
    compile_seconds: float = 0.0
    resumed: int = 0
    curve: list[CurvePoint] = field(default_factory=list)
    losses: list[LossPoint] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        plain: dict[str, Any] = without_nan(asdict(self))
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RunProgress":
        """Read what `to_dict` gave."""
        return read_as(cls, values, "progress")


def train_system(
    task: EvaluationTask, system: System, seed: int, plan: RunPlan, store: EvaluationStore, on_step: OnStep
) -> SystemRun:
    """Train ``system`` from ``seed``, going on from a checkpoint in ``store`` if there is one.

    Under `torchrun` every process calls this. The first measures, traces and saves; the runs of the others hold no
    metrics.
    """
    try:
        return _Trainer(task, system, seed, plan, store).train(on_step)
    except torch.OutOfMemoryError as error:
        raise _too_large(task, error) from error
    except RuntimeError as error:
        if "can't allocate memory" in str(error):  # what torch says of a CPU
            raise _too_large(task, error) from error
        raise
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _too_large(task: EvaluationTask, error: Exception) -> DataError:
    batch = task.spec.batch
    return DataError(
        f"a batch of {batch} does not fit into the memory of this {task.device.type} "
        f"({str(error).splitlines()[0][:80]}); pass --batch {max(1, batch // 2)} and another --name"
    )


class _Trainer:
    """One run: training, and what happens at the steps where it pauses."""

    def __init__(self, task: EvaluationTask, system: System, seed: int, plan: RunPlan, store: EvaluationStore) -> None:
        self.task, self.system, self.seed, self.plan, self.store = task, system, seed, plan, store
        self.session = EvaluationSession(task, system, seed, plan.steps)
        self.path = store.checkpoint(system.name, seed)
        self.progress = RunProgress()
        found = self.path.exists()
        self.session.ranks.agree(f"whether {self.path} exists", found)
        if found:
            self.progress = RunProgress.from_dict(self.session.load(self.path))
            self.progress.resumed += 1
        self.resumed_at = self.session.step  # what belongs to this step was done before it was saved

    def train(self, on_step: OnStep) -> SystemRun:
        """The finished run."""
        session, progress = self.session, self.progress
        try:
            if session.ranks.is_first:
                self._trace("start", at=self.plan.stage_steps()["start"])
            started = time.perf_counter()
            session.warm_up()
            progress.compile_seconds += session.plan_seconds + time.perf_counter() - started
            if session.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            meter = EnergyMeter(session.device.type, self.plan.idle_seconds, session.synchronize)
            with meter:
                self._train(meter, on_step)
            return self._finished(meter)
        finally:
            session.close()

    def _train(self, meter: EnergyMeter, on_step: OnStep) -> None:
        session, progress = self.session, self.progress
        clock = TrainingClock(session, meter)
        clock.seconds, clock.joules = progress.seconds, progress.joules
        for stop in self.plan.stops():
            if stop <= self.resumed_at:
                continue
            clock.start()
            steps = stop - session.step
            progress.timed_steps += steps
            total = torch.zeros((), device=session.device)
            while session.step < stop:
                total += session.train_step()
            clock.stop()
            progress.seconds = clock.seconds
            progress.joules = None if session.ranks.several else clock.joules  # a meter sees one process's device
            if steps:
                progress.losses.append(LossPoint(stop, session.ranks.mean(float(total) / steps)))
            if session.ranks.is_first:
                self._pause(stop)
            on_step(stop / self.plan.steps)

    def _pause(self, step: int) -> None:
        """Measure, trace and save what belongs to ``step``."""
        session, progress = self.session, self.progress
        if step in self.plan.measured_steps():
            quality = self.task.measure(session.model)
            progress.curve.append(CurvePoint(step, progress.seconds, quality, progress.joules))
        for stage, at in self.plan.stage_steps().items():
            self._trace(stage, at)
        if step < self.plan.steps:
            session.save(self.path, **progress.to_dict())

    def _trace(self, stage: str, at: int) -> None:
        path = self.store.trace(self.system.name, stage, self.seed)
        wanted = self.plan.captured and (self.seed == 0 or stage == STAGES[-1])
        if not wanted or self.session.step != at or path.exists():
            return
        label = f"{self.task.spec.name}, {self.system.name}, {stage}: {self.plan.captured} examples after {at} steps"
        trace = self.session.capture(self.plan.captured, label)
        if self.seed == 0:
            known: Densities = self.store.fact("densities") or {}
            known.setdefault(self.system.name, {})[stage] = gradient_densities(trace)
            self.store.put_fact("densities", known)
        trace.save(path)  # last, because a stage that has its file is not traced again

    def _finished(self, meter: EnergyMeter) -> SystemRun:
        session, progress, task = self.session, self.progress, self.task
        return SystemRun(
            system=self.system.name,
            seed=self.seed,
            steps=session.step,
            timed_steps=progress.timed_steps,
            seconds=progress.seconds,
            examples_per_step=task.examples_per_step(session.sizes.batch),
            compile_seconds=progress.compile_seconds,
            joules=progress.joules,
            energy_source=SEVERAL_METERS if session.ranks.several else meter.reading.source,
            peak_gib=torch.cuda.max_memory_reserved() / 2**30 if session.device.type == "cuda" else 0.0,
            sparsity=session.sparsity,
            parameters=sum(parameter.numel() for parameter in session.model.parameters()),
            moves=session.moves,
            metrics=task.metrics(session.model) if session.ranks.is_first else {},
            curve=tuple(progress.curve),
            outputs=tuple(task.outputs(session.model)) if session.ranks.is_first else (),
            resumed=progress.resumed,
            losses=tuple(progress.losses),
            processes=session.ranks.count,
        )
