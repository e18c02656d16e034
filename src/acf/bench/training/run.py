"""What one run of the benchmark took and what came out of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from statistics import mean
from typing import Any

from acf.nn.plan import PlannedLayer
from acf.records import Diverged, read_as


@dataclass(frozen=True)
class RunLength:
    """How long a run is: ``epochs`` over the data, a number of ``steps``, or ``seconds`` of training; one of them.

    Quality is measured ``measurements`` times on the way, in equal distances, the end included.
    """

    epochs: float = 0.0
    steps: int = 0
    seconds: float = 0.0
    measurements: int = 12

    def shortened(self, share: float) -> "RunLength":
        """A ``share`` of this length with one measurement, at the end."""
        steps = max(1, round(share * self.steps)) if self.steps else 0
        return replace(self, epochs=share * self.epochs, steps=steps, seconds=share * self.seconds, measurements=1)


@dataclass(frozen=True)
class CurvePoint:
    """Quality after ``step`` steps, and the ``seconds`` and ``joules`` of training up to there.

    Neither includes warm-up steps and measurements of quality. ``joules`` is None where no counter can be read.
    ``quality`` is not finite where the run has diverged.
    """

    step: int
    seconds: float
    quality: Diverged
    joules: float | None = None


@dataclass(frozen=True)
class TrainingRun:
    """One finished run.

    ``seconds`` is the training loop, moves and host included, without warm-up steps and the measurements of quality;
    ``step_ms`` is ``seconds`` over the steps it covers. ``warm_up_seconds`` is what the first steps took;
    ``compile_seconds`` is what they took beyond the time of ordinary steps, for compilation, tuning and capture, with
    the timing of layers for a plan. ``joules`` belongs to ``seconds``, idle power included; ``peak_gib`` counts the
    allocator's memory. ``rate`` and ``weight_decay`` are those the run was trained with. ``session`` is the index of
    the record's session that made it. Where `acf.plan` chose the densities, ``planned_speedup`` is what it
    predicted for forward and backward and ``checked_speedup`` what it then measured; None without a plan.
    ``planned_layers`` has the density and block of every layer, as plans differ between machines and calls.
    ``fused_norms`` counts the batch norms that `acf.fuse_batch_norms_` found.
    """

    variant: str
    seed: int
    steps: int
    seconds: float
    warm_up_seconds: float
    step_ms: float
    peak_gib: float
    quality: Diverged
    sparsity: float
    parameters: int
    moves: int
    joules: float | None
    idle_watts: float | None
    energy_source: str
    curve: tuple[CurvePoint, ...] = field(default_factory=tuple)
    compile_seconds: float = 0.0
    rate: float | None = None
    weight_decay: float | None = None
    session: int = 0
    planned_speedup: float | None = None
    checked_speedup: float | None = None
    fused_norms: int = 0
    planned_layers: tuple[PlannedLayer, ...] = ()

    @property
    def net_joules(self) -> float | None:
        """Joules beyond those of the idle device; None where one of both was not measured."""
        if self.joules is None or self.idle_watts is None:
            return None
        return self.joules - self.idle_watts * self.seconds

    @property
    def diverged(self) -> bool:
        """Whether the last measurement of quality was no finite number."""
        return not isfinite(self.quality)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any], where: str = "run") -> "TrainingRun":
        """Read what `to_dict` gave, with null for a quality that diverged.

        Early records have no ``compile_seconds``, which then follow from the rest.
        """
        run = read_as(cls, values, where)
        if run.steps < 1 or run.seconds < 0:
            raise ValueError(f"{where} has {run.steps} steps in {run.seconds} seconds")
        if "compile_seconds" in values:
            return run
        return replace(run, compile_seconds=max(0.0, run.warm_up_seconds + run.seconds - run.steps * run.step_ms / 1e3))

    @property
    def steps_seconds(self) -> float:
        """Seconds of all steps, those of the warm-up counted as ordinary ones."""
        return 1e-3 * self.step_ms * self.steps


def without_nan(values: Any) -> Any:
    """Plain ``values`` with None for every float that is not finite, which JSON cannot write.

    >>> without_nan({"quality": [1.5, float("nan")]})
    {'quality': [1.5, None]}
    """
    if isinstance(values, dict):
        return {key: without_nan(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [without_nan(value) for value in values]
    return None if isinstance(values, float) and not isfinite(values) else values


def mean_curve(runs: Sequence[TrainingRun]) -> tuple[CurvePoint, ...]:
    """The mean of several runs' curves, point by point; where some have fewer points, the last ones count."""
    length = min(len(run.curve) for run in runs)
    return tuple(_mean_point(points) for points in zip(*(run.curve[-length:] for run in runs), strict=True))


def _mean_point(points: Sequence[CurvePoint]) -> CurvePoint:
    joules = [point.joules for point in points if point.joules is not None]
    return CurvePoint(
        round(mean(point.step for point in points)),
        mean(point.seconds for point in points),
        mean(point.quality for point in points),
        mean(joules) if len(joules) == len(points) else None,
    )


def seconds_to(curve: Sequence[CurvePoint], quality: float, higher_is_better: bool) -> float | None:
    """Seconds of training until ``quality`` was reached, between measurements by straight lines; None if never.

    A quality that the first measurement exceeds was reached by then at the latest: that time is returned.
    """
    before: CurvePoint | None = None
    for point in curve:
        if point.quality >= quality if higher_is_better else point.quality <= quality:
            if before is None or point.quality == before.quality:
                return point.seconds
            share = (quality - before.quality) / (point.quality - before.quality)
            return before.seconds + share * (point.seconds - before.seconds)
        before = point
    return None
