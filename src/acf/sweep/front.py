"""What a finished sweep says: the Pareto front, and how much each parameter matters."""

from collections.abc import Mapping, Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from acf.sweep.evaluation import Attempt, Figures, Objective


def pareto_front(attempts: Sequence[Attempt], objectives: Sequence[Objective]) -> list[bool]:
    """Which points are non-dominated: none is at least as good in every objective and better in one.

    Failed points are never on the front; a figure that a machine does not have counts as the worst.
    """
    good = [index for index, each in enumerate(attempts) if each.figures is not None]
    figures = [_costs(attempts[index].figures or {}, objectives) for index in good]
    costs = np.array(figures).reshape(len(good), len(objectives))
    on_front = [False] * len(attempts)
    for row, index in enumerate(good):
        no_worse = (costs <= costs[row]).all(axis=1)
        better = (costs < costs[row]).any(axis=1)
        on_front[index] = not bool((no_worse & better).any())
    return on_front


def importance(attempts: Sequence[Attempt], objectives: Sequence[Objective]) -> dict[str, dict[str, float]]:
    """Main effect of every parameter on every objective: its share of the variance, in [0, 1].

    The variance of the mean figure per value of the parameter, over the variance of all points, of the figure's
    logarithm where all are positive. On a whole grid the shares of all parameters add up to at most 1, and what is
    missing is interaction. Objectives that do not vary, or that a point lacks, are left out.
    """
    done = [each for each in attempts if each.figures is not None]
    names = list(done[0].changes) if done else []
    effects: dict[str, dict[str, float]] = {name: {} for name in names}
    for objective in objectives:
        figures = [(each.figures or {})[objective.name] for each in done]
        known = [figure for figure in figures if figure is not None]
        if len(known) < len(done) or len(set(known)) < 2:
            continue
        values = np.array([log(figure) for figure in known] if min(known) > 0 else known)
        for name in names:
            groups = np.array([repr(each.changes.get(name)) for each in done])
            effects[name][objective.name] = _explained(values, groups)
    return effects


def ranked(effects: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Parameters by their largest effect on any objective, the most important first."""
    return sorted(effects, key=lambda name: -max(effects[name].values(), default=0.0))


def _explained(values: NDArray[np.float64], groups: NDArray[np.str_]) -> float:
    """Variance between groups over all variance."""
    deviations = values - values.mean()
    between = sum(
        (groups == group).sum() * float(deviations[groups == group].mean()) ** 2 for group in np.unique(groups)
    )
    return float(between / (deviations**2).sum())


def _costs(figures: Figures, objectives: Sequence[Objective]) -> list[float]:
    """What is minimised; infinite where there is no figure."""
    costs = []
    for objective in objectives:
        figure = figures[objective.name]
        costs.append(float("inf") if figure is None else -figure if objective.maximise else figure)
    return costs
