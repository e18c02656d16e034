"""The record of a comparison: all methods with all seeds in one JSON file, resumed after an interruption."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from acf.bench.accuracy.training import RunRecord, TrainingSpec
from acf.errors import DataError
from acf.files import is_stream
from acf.records import data_of, parse_json, read_as, read_value, write_record


@dataclass
class Comparison:
    """The finished runs of a `TrainingSpec`, with what a reader needs to judge and repeat them."""

    spec: TrainingSpec
    data: str = ""
    machine: str = ""
    date: str = ""
    commands: list[str] = field(default_factory=list)
    runs: list[RunRecord] = field(default_factory=list)

    def pending(self, methods: Sequence[str], seeds: Sequence[int]) -> list[tuple[str, int]]:
        """Method and seed of the runs still to do: the first seed of every method, then the second, and so on."""
        done = {(run.method, run.seed) for run in self.runs}
        return [(method, seed) for seed in seeds for method in methods if (method, seed) not in done]

    def summaries(self) -> list["MethodSummary"]:
        """One summary per method, in the order of their first runs."""
        methods = list(dict.fromkeys(run.method for run in self.runs))
        dense = [run.accuracy for run in self.runs if run.method == "dense"]
        return [
            MethodSummary.of([run for run in self.runs if run.method == method], mean(dense) if dense else None)
            for method in methods
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"summaries": [asdict(summary) for summary in self.summaries()]}

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        write_record(path, "accuracy", self.to_dict())

    @classmethod
    def load(cls, path: Path) -> "Comparison":
        """Read what `save` wrote."""
        try:
            values = read_value(dict[str, Any], data_of(parse_json(path.read_text(encoding="utf-8"))), "data")
            return read_as(cls, {name: value for name, value in values.items() if name != "summaries"})
        except (OSError, ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise DataError(f"{path} holds no accuracy comparison ({reason}); pass a file that --out wrote") from error

    @classmethod
    def resume(cls, path: Path | None, spec: TrainingSpec) -> "Comparison":
        """The comparison in ``path``, which must have the same spec; a new one if there is no such file."""
        if path is None or not path.exists() or is_stream(path):
            return cls(spec)
        found = cls.load(path)
        for name, value in asdict(spec).items():
            if getattr(found.spec, name) != value:
                raise DataError(
                    f"{path} holds runs with {name} {getattr(found.spec, name)}, not {value}; "
                    "pass another --out, or the options of those runs"
                )
        return found


@dataclass(frozen=True)
class MethodSummary:
    """Accuracies of one method in per cent; ``deviation`` is the sample standard deviation, 0 for a single seed.

    ``to_dense`` is the difference to the mean of dense training in percentage points, None without dense runs.
    """

    method: str
    seeds: int
    accuracy: float
    deviation: float
    to_dense: float | None
    sparsity: float
    mean_density: float
    seconds: float
    dropped_again: float | None

    @classmethod
    def of(cls, runs: Sequence[RunRecord], dense_accuracy: float | None) -> "MethodSummary":
        """The summary of one method's runs."""
        accuracies = [run.accuracy for run in runs]
        shares = [run.dropped_again for run in runs if run.dropped_again is not None]
        return cls(
            runs[0].method,
            len(runs),
            round(mean(accuracies), 3),
            round(stdev(accuracies), 3) if len(runs) > 1 else 0.0,
            None if dense_accuracy is None else round(mean(accuracies) - dense_accuracy, 3),
            round(mean(run.sparsity for run in runs), 4),
            round(mean(run.mean_density for run in runs), 4),
            round(mean(run.seconds for run in runs), 1),
            round(mean(shares), 3) if shares else None,
        )
