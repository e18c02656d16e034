"""All runs of one variant in one row, beside those of the baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan
from statistics import mean, stdev

from acf.bench.training.run import TrainingRun, mean_curve, seconds_to


@dataclass(frozen=True)
class VariantSummary:
    """All runs of one variant: means over its runs, deviations where there are two or more.

    ``speedup`` is the baseline's mean seconds over this variant's, ``quality_gap`` how much better it is than the
    baseline (negative: worse), ``seconds_to_baseline`` the time at which the mean curve of the runs reached the
    baseline's final quality (None if it never did), ``sooner`` the baseline's mean seconds over that time,
    ``energy_ratio`` the baseline's joules over this variant's; ``net_joules`` and ``net_energy_ratio`` are without
    what the idle device would have drawn. ``compile_seconds`` is of the run, or trial of a
    learning rate, that compiled longest: the first one, since later ones find its code. ``whole_seconds`` is what a
    user waits who trains once: all steps, with that compilation. ``diverged`` is the number of runs that ended
    without a finite quality; the mean is not finite then.
    """

    variant: str
    runs: int
    rate: float | None
    weight_decay: float | None
    seconds: float
    step_ms: float
    speedup: float
    compile_seconds: float
    whole_seconds: float
    quality: float
    quality_deviation: float
    quality_gap: float
    seconds_to_baseline: float | None
    sooner: float | None
    joules: float | None
    energy_ratio: float | None
    net_joules: float | None
    net_energy_ratio: float | None
    peak_gib: float
    sparsity: float
    moves: float
    diverged: int = 0


def summarize(
    runs: Sequence[TrainingRun],
    baseline: Sequence[TrainingRun],
    higher_is_better: bool,
    longest_trial_compile_seconds: float = 0.0,
) -> VariantSummary:
    """The row of one variant's ``runs``; ``longest_trial_compile_seconds`` is of its trials, 0 without any."""
    seconds, quality = mean(run.seconds for run in runs), [run.quality for run in runs]
    baseline_seconds, target = mean(run.seconds for run in baseline), mean(run.quality for run in baseline)
    reached = seconds_to(mean_curve(runs), target, higher_is_better)
    joules, baseline_joules = (_mean_or_none([run.joules for run in each]) for each in (runs, baseline))
    net_joules, baseline_net_joules = (_mean_or_none([run.net_joules for run in each]) for each in (runs, baseline))
    compile_seconds = max(longest_trial_compile_seconds, *(run.compile_seconds for run in runs))
    return VariantSummary(
        variant=runs[0].variant,
        runs=len(runs),
        rate=runs[0].rate,
        weight_decay=runs[0].weight_decay,
        seconds=seconds,
        step_ms=mean(run.step_ms for run in runs),
        speedup=baseline_seconds / seconds,
        compile_seconds=compile_seconds,
        whole_seconds=compile_seconds + mean(run.steps_seconds for run in runs),
        quality=mean(quality),
        quality_deviation=_deviation(quality),
        quality_gap=mean(quality) - target if higher_is_better else target - mean(quality),
        seconds_to_baseline=reached,
        sooner=baseline_seconds / reached if reached else None,
        joules=joules,
        energy_ratio=_ratio_or_none(baseline_joules, joules),
        net_joules=net_joules,
        net_energy_ratio=_ratio_or_none(baseline_net_joules, net_joules),
        peak_gib=mean(run.peak_gib for run in runs),
        sparsity=mean(run.sparsity for run in runs),
        moves=mean(run.moves for run in runs),
        diverged=sum(run.diverged for run in runs),
    )


def _deviation(quality: Sequence[float]) -> float:
    """Sample deviation, 0 for a single run; NaN where one of them diverged."""
    if not all(isfinite(each) for each in quality):
        return nan
    return stdev(quality) if len(quality) > 1 else 0.0


def _mean_or_none(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return mean(present) if present and len(present) == len(values) else None


def _ratio_or_none(value: float | None, over: float | None) -> float | None:
    return None if value is None or not over else value / over
