"""Running a sweep from its record, and what comes of it."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acf import __version__
from acf.records import values_of
from acf.run_folder import only_process_writing
from acf.sweep.evaluation import Attempt, Evaluation, Objective
from acf.sweep.front import importance, pareto_front
from acf.sweep.search import Grid, Search
from acf.sweep.store import SweepStore
from acf.sweep.sweep import Axes
from acf.sweep.workers import ThisProcess, Workers

OnProgress = Callable[[str, float], None]
"""Called with what is going on and the share that is done."""


@dataclass(frozen=True)
class SweepRow:
    """A point of a finished sweep, and whether it is on the Pareto front."""

    attempt: Attempt
    on_front: bool


@dataclass(frozen=True)
class SweepRecord:
    """A sweep as its file holds it: its points in the order of the first objective, the failed ones last.

    ``importance``: by parameter and objective, as `acf.sweep.front.importance` gives it.
    """

    title: str
    objectives: tuple[Objective, ...]
    rows: tuple[SweepRow, ...]
    importance: Mapping[str, Mapping[str, float]]

    @property
    def parameters(self) -> tuple[str, ...]:
        """What the sweep varies."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.attempt.changes))

    @property
    def front(self) -> tuple[SweepRow, ...]:
        """The points on the Pareto front."""
        return tuple(row for row in self.rows if row.on_front)

    @property
    def failed(self) -> tuple[SweepRow, ...]:
        """The points without figures."""
        return tuple(row for row in self.rows if row.attempt.figures is None)

    @property
    def failures(self) -> dict[str, int]:
        """How many points failed for each reason, the most frequent first."""
        return dict(Counter(row.attempt.failure for row in self.failed).most_common())


@dataclass(frozen=True)
class Sweep:
    """``evaluation`` of the points that ``search`` chooses from ``axes``, recorded in the SQLite file ``path``."""

    title: str
    axes: Axes
    evaluation: Evaluation
    path: Path
    search: Search = field(default_factory=Grid)

    def __post_init__(self) -> None:
        self.evaluation.check(self.axes)

    @property
    def about(self) -> dict[str, Any]:
        """What a reader of the file needs to know."""
        objectives = [[objective.name, objective.maximise] for objective in self.evaluation.objectives]
        axes = {name: list(values) for name, values in self.axes.values.items()}
        return {"title": self.title, "objectives": objectives, "axes": axes}


def run_sweep(
    sweep: Sweep, workers: Workers | None = None, on_progress: OnProgress = lambda what, share: None
) -> SweepRecord:
    """Evaluate the points that the file does not hold yet, in this process unless ``workers`` says otherwise.

    A sweep that was killed goes on where it was. A point that fails is recorded with its reason and not tried again.
    """
    with only_process_writing(sweep.path), SweepStore(sweep.path) as store:
        store.describe(sweep.about, _identity(sweep))
        total, done = sweep.search.size(sweep.axes), 0
        before = len(store.read())
        started = time.monotonic()
        for attempts in sweep.search.run(sweep.axes, sweep.evaluation, workers or ThisProcess(), store):
            done += len(attempts)
            share = min(1.0, (before + done) / max(total, before + done))
            left_s = (time.monotonic() - started) / done * max(0, total - before - done)
            on_progress(f"{before + done} of {total} points, {left_s:.0f} s left", share)
    return read_sweep(sweep.path)


def read_sweep(path: Path) -> SweepRecord:
    """The sweep that a file holds, finished or not."""
    with SweepStore(path, must_exist=True) as store:
        about, attempts = store.about, store.read()
    with values_of(str(path)):
        return _record(about, attempts)


def _record(about: dict[str, Any], attempts: list[Attempt]) -> SweepRecord:
    objectives = tuple(Objective(name, maximise) for name, maximise in about["objectives"])
    names = list(about["axes"])
    attempts = [
        Attempt({name: each.changes[name] for name in names if name in each.changes}, each.figures, each.failure)
        for each in attempts
    ]
    rows = [SweepRow(*pair) for pair in zip(attempts, pareto_front(attempts, objectives), strict=True)]
    effects = importance(attempts, objectives)
    return SweepRecord(about["title"], objectives, tuple(sorted(rows, key=_order(objectives[0]))), effects)


def _identity(sweep: Sweep) -> dict[str, Any]:
    """What the figures in the file depend on; models may change with the version of the package."""
    return sweep.evaluation.identity | {"version of acf": __version__, "set of parameters": sorted(sweep.axes.values)}


def _order(objective: Objective) -> Callable[[SweepRow], tuple[bool, float]]:
    """Best first; points without the figure last."""

    def key(row: SweepRow) -> tuple[bool, float]:
        figure = row.attempt.figures[objective.name] if row.attempt.figures else None
        return figure is None, 0.0 if figure is None else -figure if objective.maximise else figure

    return key
