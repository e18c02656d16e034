"""The runs of one task in one JSON file: written after every run, continued, and merged with other records."""

import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

from acf import __version__
from acf.bench.training.run import RunLength, TrainingRun, without_nan
from acf.bench.training.summary import VariantSummary, summarize
from acf.bench.training.task import Task, TaskSpec
from acf.errors import DataError, FileError
from acf.records import data_of, parse_json, read_as, read_value, write_record
from acf.records.provenance import processor_name

MUST_AGREE = ("device", "torch", "data")
"""Facts of sessions that must be the same for their seconds, joules and quality to be set beside each other."""


@dataclass(frozen=True)
class Trial:
    """A run that tried a learning rate and weight decay; ``quality`` on held-out training data, None if it diverged."""

    variant: str
    rate: float
    weight_decay: float
    quality: float | None
    steps: int
    seconds: float
    compile_seconds: float
    session: int = 0


@dataclass
class TrainingComparison:
    """The runs of one task so far; the first variant is the baseline that ratios refer to.

    ``sessions`` are the calls that made the runs, each with machine, software, commit, date and command. ``trials``
    are the runs that chose learning rates, each ``tuning_share`` of a run long.
    """

    task: TaskSpec
    length: RunLength
    higher_is_better: bool
    sessions: list[dict[str, str]] = field(default_factory=list)
    runs: list[TrainingRun] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    tuning_share: float | None = None

    def find(self, variant: str, seed: int) -> TrainingRun | None:
        """The run of that variant and seed, if it was made."""
        return next((run for run in self.runs if run.variant == variant and run.seed == seed), None)

    def variants(self) -> list[str]:
        """Names in the order of their first runs."""
        return list(dict.fromkeys(run.variant for run in self.runs))

    def runs_of(self, variant: str) -> list[TrainingRun]:
        """Every run of that variant."""
        return [run for run in self.runs if run.variant == variant]

    def trials_of(self, variant: str) -> list[Trial]:
        """What was tried for that variant."""
        return [trial for trial in self.trials if trial.variant == variant]

    def best_trial(self, variant: str) -> Trial | None:
        """The trial of the best quality; None without trials."""
        sign = 1.0 if self.higher_is_better else -1.0
        finished = [trial for trial in self.trials_of(variant) if trial.quality is not None]
        return max(finished, key=lambda trial: sign * (trial.quality or 0.0), default=None)

    def at_the_edge(self) -> list[str]:
        """Variants whose best learning rate is the lowest or highest of those tried, so that a better one may exist."""
        edges = []
        for variant in dict.fromkeys(trial.variant for trial in self.trials):
            rates, best = {trial.rate for trial in self.trials_of(variant)}, self.best_trial(variant)
            if best is not None and len(rates) > 1 and best.rate in (min(rates), max(rates)):
                edges.append(variant)
        return edges

    def place_session(self, session: dict[str, str]) -> int:
        """The index of ``session``, which is added if it is new."""
        if session not in self.sessions:
            self.sessions.append(session)
        return self.sessions.index(session)

    def summaries(self) -> list[VariantSummary]:
        """One row for each variant, the baseline first."""
        names = self.variants()
        return [
            summarize(
                self.runs_of(name),
                self.runs_of(names[0]),
                self.higher_is_better,
                max((trial.compile_seconds for trial in self.trials_of(name)), default=0.0),
            )
            for name in names
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file; None for the quality of runs that diverged."""
        values = {
            "task": asdict(self.task),
            "length": asdict(self.length),
            "higher_is_better": self.higher_is_better,
            "sessions": self.sessions,
            "summaries": [asdict(summary) for summary in self.summaries()],
            "tuning_share": self.tuning_share,
            "trials": [asdict(trial) for trial in self.trials],
            "runs": [run.to_dict() for run in self.runs],
        }
        plain: dict[str, Any] = without_nan(values)
        return plain

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        write_record(path, "training", self.to_dict())


def load_comparison(path: Path) -> TrainingComparison:
    """Read what `TrainingComparison.save` wrote, or an earlier version, whose one session was called machine."""
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{path} is no record of `acf bench training` ({error}); pass another path") from error
    return comparison_from_values(data_of(values), str(path))


def comparison_from_values(values: dict[str, Any], source: str) -> TrainingComparison:
    """The comparison that `TrainingComparison.to_dict` gave; ``source`` names its file in errors."""
    try:
        return TrainingComparison(
            read_as(TaskSpec, values["task"], "task"),
            read_as(RunLength, values["length"], "length"),
            bool(values["higher_is_better"]),
            read_value(list[dict[str, str]], values.get("sessions") or [values["machine"]], "sessions"),
            [TrainingRun.from_dict(run, f"runs.{place}") for place, run in enumerate(values["runs"])],
            read_value(list[Trial], values.get("trials", []), "trials"),
            read_value(float | None, values.get("tuning_share"), "tuning_share"),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise FileError(f"{source} is no record of `acf bench training` ({reason}); pass another path") from error


def require_alike(found: TrainingComparison, wanted: TrainingComparison, path: Path) -> None:
    """Refuse, by name, a record whose runs cannot stand beside those that are wanted."""
    pairs: list[tuple[str, Any, Any]] = []
    pairs += [(f"task.{name}", value, asdict(wanted.task)[name]) for name, value in asdict(found.task).items()]
    pairs += [(f"length.{name}", value, asdict(wanted.length)[name]) for name, value in asdict(found.length).items()]
    if found.tuning_share is not None and wanted.tuning_share is not None:
        pairs.append(("tuning_share", found.tuning_share, wanted.tuning_share))
    for name in MUST_AGREE:
        there, here = (_facts(each.sessions, name) for each in (found, wanted))
        pairs += [(name, there, here)] if there and here else []
    for name, there, here in pairs:
        if there != here:
            raise DataError(
                f"{path} has {name} {there}, and this comparison {here}; use the same, or another file for --out"
            )


def _facts(sessions: Iterable[dict[str, str]], name: str) -> str:
    """The fact of that name, or all of them if sessions differ; empty where none is known."""
    return "; ".join(sorted({session[name] for session in sessions if name in session}))


def merge(records: Sequence[tuple[Path, TrainingComparison]]) -> TrainingComparison:
    """All runs of several records of one task in one; a run that two records share is counted once."""
    first = records[0][1]
    merged = replace(first, sessions=[], runs=[], trials=[])
    for path, record in records:
        require_alike(record, first, path)
        merged.tuning_share = merged.tuning_share if merged.tuning_share is not None else record.tuning_share
        places = [merged.place_session(session) for session in record.sessions]
        _add_new(merged.runs, (replace(run, session=places[run.session]) for run in record.runs))
        _add_new(merged.trials, (replace(trial, session=places[trial.session]) for trial in record.trials))
        for run in record.runs:
            if run.rate is not None and run.weight_decay is not None:
                require_settings(merged.runs_of(run.variant), run.rate, run.weight_decay, path)
    return merged


def require_settings(runs: Iterable[TrainingRun], rate: float, weight_decay: float, path: Path | None) -> None:
    """Refuse, by name, runs of one variant that were trained with another learning rate or weight decay."""
    for run in runs:
        pairs = (("learning rate", run.rate, rate), ("weight decay", run.weight_decay, weight_decay))
        for name, there, here in pairs:
            if there is not None and there != here:
                raise DataError(
                    f"{run.variant} has runs at the {name} {there:g} and at {here:g} ({path}); tune over the same "
                    "values, or keep the runs in another record"
                )


def _add_new(known: list[Any], found: Iterable[Any]) -> None:
    known.extend(each for each in found if each not in known)


def session_facts(task: Task, command: str = "") -> dict[str, str]:
    """What a reader must know of the machine, the software and the data, when it was, and the command."""
    device = task.device
    on_gpu = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if on_gpu else f"{processor_name()}, {torch.get_num_threads()} threads"
    return {
        "device": name,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "acf": __version__,
        "revision": _revision(),
        "date": date.today().isoformat(),
        "data": task.data,
        "command": command,
    }


def _revision() -> str:
    """The commit of the source tree, or "unknown" where there is no git."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"
