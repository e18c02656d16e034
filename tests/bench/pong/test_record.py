"""Figures that follow from the points of runs."""

from dataclasses import replace

import pytest

from acf.bench.pong.record import PongRun, ScorePoint, seconds_to_score, summarize

RUN = PongRun(
    "dense", 0, 4_000, 100, 20.0, 500.0, 70.0, "NVML", 16.0, 18.0, 64, 0.0, 1_687_206, 0, 1.0, 2.0, interruptions=0
)


def points(seed: int, *scores: float | None) -> list[ScorePoint]:
    return [
        ScorePoint("dense", seed, 1_000 * place, 25 * place, 5.0 * place, None, score, 9, 0.1, None)
        for place, score in enumerate(scores, start=1)
    ]


def test_the_time_to_a_score_lies_on_the_line_between_two_points() -> None:
    assert seconds_to_score(points(0, None, 5.0, 25.0, 20.0)) == pytest.approx(12.5)
    assert seconds_to_score(points(0, None, 5.0, 14.9)) is None


def test_a_summary_averages_over_seeds_and_counts_those_that_reached_the_target() -> None:
    runs = [RUN, replace(RUN, seed=1, seconds=40.0, score=10.0)]
    summary = summarize(runs, points(0, 5.0, 15.0) + points(1, 5.0, 10.0))
    assert summary.frames_per_s == pytest.approx((200 + 100) / 2)
    assert (summary.score, summary.score_deviation) == pytest.approx((13.0, 18.0**0.5))
    assert (summary.reached, summary.seconds_to_target) == (1, 10.0)
    assert summary.joules_per_step == pytest.approx(5.0)


def test_energy_that_one_run_could_not_measure_has_no_mean() -> None:
    assert summarize([RUN, replace(RUN, seed=1, joules=None)], []).joules_per_step is None
