"""The Pareto front and the importance of parameters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acf.sweep import Attempt, Objective, importance, pareto_front

TIME, ACCURACY = Objective("time"), Objective("accuracy", maximise=True)


def points(*figures: tuple[float | None, float]) -> list[Attempt]:
    return [Attempt({"p": index}, {"time": time, "accuracy": good}) for index, (time, good) in enumerate(figures)]


def test_points_that_another_one_beats_are_not_on_the_front() -> None:
    attempts = [*points((1, 0.5), (2, 0.9), (2, 0.8), (3, 0.9), (1, 0.5)), Attempt({"p": 9}, failure="no")]
    assert pareto_front(attempts, [TIME, ACCURACY]) == [True, True, False, False, True, False]


def test_of_points_that_all_failed_none_is_on_the_front() -> None:
    assert pareto_front([Attempt({"p": 9}, failure="no")], [TIME, ACCURACY]) == [False]


def test_a_figure_that_is_missing_counts_as_the_worst() -> None:
    assert pareto_front(points((None, 0.9), (1, 0.9)), [TIME, ACCURACY]) == [False, True]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_every_point_is_on_the_front_or_beaten_by_one_that_is(figures: list[tuple[int, int]]) -> None:
    attempts = points(*figures)
    front = pareto_front(attempts, [TIME, ACCURACY])
    assert any(front)
    for (time, good), on_front in zip(figures, front, strict=True):
        beaten = [t <= time and g >= good and (t < time or g > good) for t, g in figures]
        assert on_front is not any(beaten)


def test_importance_is_the_share_of_variance_between_the_values_of_a_parameter() -> None:
    attempts = [
        Attempt({"a": a, "b": b, "c": c}, {"time": 10.0**a * 2.0**b}) for a in (0, 1) for b in (0, 1) for c in (0, 1)
    ]
    shares = {name: effect["time"] for name, effect in importance(attempts, [TIME]).items()}
    assert sum(shares.values()) == pytest.approx(1)  # logarithms add, so nothing interacts
    assert shares["a"] > shares["b"] > shares["c"] == pytest.approx(0)


def test_an_objective_that_does_not_vary_has_no_importance() -> None:
    attempts = [Attempt({"a": a}, {"time": 1.0}) for a in (0, 1)]
    assert importance(attempts, [TIME]) == {"a": {}}
    assert importance([Attempt({"a": 0}, failure="no")], [TIME]) == {}
