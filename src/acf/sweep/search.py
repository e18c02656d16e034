"""Which points a sweep evaluates: the whole grid, or those that Optuna proposes."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from acf.errors import SweepError
from acf.extras import import_optional
from acf.sweep.evaluation import Attempt, Evaluation, Objective
from acf.sweep.store import SweepStore
from acf.sweep.sweep import Axes, Changes, Value
from acf.sweep.workers import Workers

WORST = 1e30
"""Told to Optuna in place of a figure that a machine does not have."""


class Search(Protocol):
    """Chooses points, has them evaluated and records them."""

    def size(self, axes: Axes) -> int:
        """How many points the sweep has at most."""
        ...

    def run(self, axes: Axes, evaluation: Evaluation, workers: Workers, store: SweepStore) -> Iterator[list[Attempt]]:
        """Evaluate what is not recorded yet; yields attempts as they are recorded."""
        ...


@dataclass(frozen=True)
class Grid:
    """Every combination of values."""

    def size(self, axes: Axes) -> int:
        """All points of the grid."""
        return axes.size

    def run(self, axes: Axes, evaluation: Evaluation, workers: Workers, store: SweepStore) -> Iterator[list[Attempt]]:
        """Evaluate the points that are missing, neighbours that share work one after another."""
        for attempts in workers.evaluate(evaluation, store.missing(axes.grid(evaluation.slowest))):
            store.add(attempts)
            yield attempts


@dataclass(frozen=True)
class OptunaSearch:
    """``points`` different points that Optuna's default sampler proposes for all objectives at once.

    Recorded points are told to the sampler first, so that a resumed search goes on from what it knows.
    """

    points: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.points < 1:
            raise SweepError(f"--optuna {self.points} is below 1; give the number of points to evaluate")
        _import_optuna()

    def size(self, axes: Axes) -> int:
        """The points asked for, or the grid where that is smaller."""
        return min(self.points, axes.size)

    def run(self, axes: Axes, evaluation: Evaluation, workers: Workers, store: SweepStore) -> Iterator[list[Attempt]]:
        """Evaluate as many points at a time as there are workers, and tell Optuna what they gave."""
        recorded = store.read()
        study = _Study(axes, evaluation.objectives, self.seed + len(recorded))
        study.learn(recorded)
        while len(recorded) < self.size(axes):
            asked = study.ask(min(workers.width, self.size(axes) - len(recorded)))
            for attempts in workers.evaluate(evaluation, asked):
                store.add(attempts)
                study.tell(attempts)
                recorded += attempts
                yield attempts


class _Study:
    """An Optuna study over the values of ``axes``; it never proposes a point twice."""

    MOST_REPEATS = 50
    """Proposals in a row of points that are known before one is taken at random from those left."""

    def __init__(self, axes: Axes, objectives: Sequence[Objective], seed: int) -> None:
        self.optuna = _import_optuna()
        self.optuna.logging.set_verbosity(self.optuna.logging.ERROR)
        self.axes, self.objectives = axes, objectives
        several = len(objectives) > 1
        samplers = self.optuna.samplers
        self.study = self.optuna.create_study(
            directions=["maximize" if each.maximise else "minimize" for each in objectives],
            sampler=samplers.NSGAIISampler(seed=seed) if several else samplers.TPESampler(seed=seed),
        )
        self.distributions = {
            name: self.optuna.distributions.CategoricalDistribution(values) for name, values in axes.values.items()
        }
        self.known: set[str] = set()
        self.asked: dict[str, Any] = {}

    def learn(self, attempts: Sequence[Attempt]) -> None:
        """Points of an earlier run."""
        for each in attempts:
            self.known.add(_key(each.changes, self.axes))
            fits = all(each.changes.get(name) in values for name, values in self.axes.values.items())
            costs = self._costs(each)
            if fits and costs is not None:
                trial = self.optuna.trial.create_trial(
                    params=dict(each.changes), distributions=self.distributions, values=costs
                )
                self.study.add_trial(trial)

    def ask(self, count: int) -> list[Changes]:
        """That many new points."""
        points: list[Changes] = []
        repeats = 0
        while len(points) < count:
            trial = self.study.ask(self.distributions)
            changes: dict[str, Value] = {name: trial.params[name] for name in self.axes.values}
            key = _key(changes, self.axes)
            if key not in self.known:
                points.append(changes)
                self.known.add(key)
                self.asked[key] = trial
                repeats = 0
                continue
            self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
            repeats += 1
            if repeats > self.MOST_REPEATS:
                self._enqueue_new()
        return points

    def tell(self, attempts: Sequence[Attempt]) -> None:
        """What points gave; failed ones are told as failed."""
        for each in attempts:
            trial = self.asked.pop(_key(each.changes, self.axes))
            costs = self._costs(each)
            if costs is None:
                self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
            else:
                self.study.tell(trial, costs)

    def _enqueue_new(self) -> None:
        """Let the next proposal be the first point of the grid that is not known."""
        new = next(changes for changes in self.axes.grid() if _key(changes, self.axes) not in self.known)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.study.enqueue_trial(new)

    def _costs(self, each: Attempt) -> list[float] | None:
        """The objectives of a point, the worst where its machine has no such figure; None: it failed."""
        if each.figures is None:
            return None
        figures = [(objective, each.figures[objective.name]) for objective in self.objectives]
        return [(-WORST if aim.maximise else WORST) if figure is None else figure for aim, figure in figures]


def _key(changes: Changes, axes: Axes) -> str:
    return repr([changes.get(name) for name in axes.values])


def _import_optuna() -> Any:
    return import_optional("optuna", needed_by="--optuna")
