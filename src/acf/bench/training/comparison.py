"""Runs of several variants and seeds, kept in one JSON file, and what they say beside each other."""

import json
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from acf import __version__
from acf.bench.training.run import RunLength, TrainingRun, train_variant
from acf.bench.training.task import Task, TaskSpec
from acf.bench.training.variant import Variant
from acf.errors import DataError, FileError
from acf.files import write_whole


@dataclass(frozen=True)
class VariantSummary:
    """All runs of one variant: means over its seeds, deviations where there are two or more.

    ``speedup`` is the baseline's mean seconds over this variant's, ``quality_gap`` how much better it is than the
    baseline (negative: worse), ``seconds_to_baseline`` the mean time until a run reached the baseline's final quality
    (None unless all did), ``energy_ratio`` the baseline's joules over this variant's.
    """

    variant: str
    runs: int
    seconds: float
    step_ms: float
    speedup: float
    quality: float
    quality_deviation: float
    quality_gap: float
    seconds_to_baseline: float | None
    joules: float | None
    energy_ratio: float | None
    peak_gib: float
    sparsity: float
    moves: float


@dataclass
class TrainingComparison:
    """The runs of one task so far; the first variant is the baseline that ratios refer to."""

    task: TaskSpec
    length: RunLength
    higher_is_better: bool
    machine: dict[str, str]
    runs: list[TrainingRun] = field(default_factory=list)

    def find(self, variant: str, seed: int) -> TrainingRun | None:
        """The run of that variant and seed, if it was made."""
        return next((run for run in self.runs if run.variant == variant and run.seed == seed), None)

    def variants(self) -> list[str]:
        """Names in the order of their first runs."""
        return list(dict.fromkeys(run.variant for run in self.runs))

    def summaries(self) -> list[VariantSummary]:
        """One row for each variant, the baseline first."""
        names = self.variants()
        if not names:
            return []
        baseline = [run for run in self.runs if run.variant == names[0]]
        return [self._summary([run for run in self.runs if run.variant == name], baseline) for name in names]

    def _summary(self, runs: Sequence[TrainingRun], baseline: Sequence[TrainingRun]) -> VariantSummary:
        seconds, quality = mean(run.seconds for run in runs), [run.quality for run in runs]
        target = mean(run.quality for run in baseline)
        gap = mean(quality) - target if self.higher_is_better else target - mean(quality)
        reached = [run.seconds_to(target, self.higher_is_better) for run in runs]
        joules = _mean_or_none([run.joules for run in runs])
        baseline_joules = _mean_or_none([run.joules for run in baseline])
        return VariantSummary(
            variant=runs[0].variant,
            runs=len(runs),
            seconds=seconds,
            step_ms=mean(run.step_ms for run in runs),
            speedup=mean(run.seconds for run in baseline) / seconds,
            quality=mean(quality),
            quality_deviation=stdev(quality) if len(quality) > 1 else 0.0,
            quality_gap=gap,
            seconds_to_baseline=_mean_or_none(reached),
            joules=joules,
            energy_ratio=None if joules is None or baseline_joules is None else baseline_joules / joules,
            peak_gib=mean(run.peak_gib for run in runs),
            sparsity=mean(run.sparsity for run in runs),
            moves=mean(run.moves for run in runs),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return {
            "task": asdict(self.task),
            "length": asdict(self.length),
            "higher_is_better": self.higher_is_better,
            "machine": self.machine,
            "summaries": [asdict(summary) for summary in self.summaries()],
            "runs": [run.to_dict() for run in self.runs],
        }

    def save(self, path: Path) -> None:
        """Write the file in one step."""
        write_whole(path, json.dumps(self.to_dict(), indent=1).encode())


def load_comparison(path: Path) -> TrainingComparison:
    """Read what `TrainingComparison.save` wrote."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return TrainingComparison(
            TaskSpec(**values["task"]),
            RunLength(**values["length"]),
            bool(values["higher_is_better"]),
            dict(values["machine"]),
            [TrainingRun.from_dict(run) for run in values["runs"]],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path} is no record of `acf bench training` ({error}); pass another --out") from error


@dataclass(frozen=True)
class ComparisonOptions:
    """Which variants and seeds to run, and the file that keeps them; runs in it are not made again."""

    variants: tuple[str, ...]
    seeds: int = 3
    out: Path | None = None


def compare_variants(
    task: Task, length: RunLength, options: ComparisonOptions, on_progress: Callable[[str, float], None]
) -> TrainingComparison:
    """Train every variant with every seed, the variants taking turns, so that a drifting machine disturbs all alike."""
    variants = [Variant.parse(name) for name in options.variants]
    comparison = TrainingComparison(task.spec, length, task.higher_is_better, machine_facts(task.device))
    if options.out is not None and options.out.exists():
        comparison = _continue(load_comparison(options.out), comparison, options.out)
    total = len(variants) * options.seeds
    for index in range(total):
        variant, seed = variants[index % len(variants)], index // len(variants)
        if comparison.find(variant.name, seed) is not None:
            continue
        what = f"{variant.name}, seed {seed}"
        run = train_variant(task, variant, seed, length, _shared(on_progress, what, index, total))
        comparison.runs.append(run)
        if options.out is not None:
            comparison.save(options.out)
    return comparison


def _shared(on_progress: Callable[[str, float], None], what: str, index: int, total: int) -> Callable[[float], None]:
    return lambda share: on_progress(what, (index + share) / total)


def _continue(found: TrainingComparison, wanted: TrainingComparison, path: Path) -> TrainingComparison:
    if found.task != wanted.task or found.length != wanted.length:
        raise DataError(
            f"{path} holds runs of another task or length ({found.task.name}, {found.length}); pass another --out"
        )
    return found


def _mean_or_none(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return mean(present) if present and len(present) == len(values) else None


def machine_facts(device: torch.device) -> dict[str, str]:
    """What a reader must know of the machine and the software, and when it was."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "device": name,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "acf": __version__,
        "revision": _revision(),
        "date": date.today().isoformat(),
    }


def _revision() -> str:
    """The commit of the source tree, or "unknown" where there is no git."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"
