"""Whole runs of a small game: what is learned, what is recorded, and how a killed run goes on."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from acf.bench.pong.loop import Harness, PongTraining, train_on_pong
from acf.bench.pong.record import ScorePoint
from acf.bench.pong.settings import DqnSettings
from acf.metrics.meters import EnergyMeter
from acf.trace import Trace

MakeHarness = Callable[..., Harness]


def test_dqn_learns_a_game_of_one_rule(harness: MakeHarness) -> None:
    settings = DqnSettings(frames=8 * 4 * 35, games=8, update_every=8, batch=8, capacity=400, warm_up=56, rate=3e-4)
    settings = replace(settings, n_step=1, discount=0.0, target_every=5)
    run = train_on_pong(harness(settings, points=1, evaluates=True), "dense", 0)
    assert run.steps == settings.steps == 28
    assert run.evaluated == 8
    assert run.evaluation is not None
    assert run.evaluation > 2.0  # of 3 points; playing at random earns 0


def test_a_run_is_recorded_with_its_points(harness: MakeHarness, small: DqnSettings) -> None:
    shared = harness(small, captured=2, evaluates=False)
    seen: list[float] = []
    run = train_on_pong(shared, "static-90/block=32", 0, lambda share, score: seen.append(share))
    points = shared.store.rows(ScorePoint)
    assert [point.frames for point in points] == [80, 160, 240, 320]
    assert [point.steps for point in points] == [0, 0, 5, 10]
    assert [point.episodes for point in points] == [4, 12, 20, 24]
    assert (run.frames, run.steps, run.moves, run.interruptions) == (320, 10, 0, 0)
    assert run.seconds == points[-1].seconds > points[0].seconds > 0.0
    assert run.sparsity == pytest.approx(0.89, abs=0.02)
    assert seen == [0.25, 0.5, 0.75, 1.0]
    for moment in ("start", "middle", "end"):
        assert Trace.load(shared.store.trace("static-90/block=32", 0, moment)).ops
    written = json.loads((shared.store.folder / "pong.json").read_text())["data"]
    assert [each["variant"] for each in written["runs"]] == ["static-90/block=32"]


def test_a_run_that_was_killed_fills_its_buffer_and_goes_on(harness: MakeHarness, small: DqnSettings) -> None:
    def die_after_the_third_point(share: float, score: float | None) -> None:
        if share == 0.75:
            raise KeyboardInterrupt

    variant = "rigl-90/block=32/moves=3"
    with pytest.raises(KeyboardInterrupt):
        train_on_pong(harness(small), variant, 1, die_after_the_third_point)
    store = harness(small).store
    assert store.find(variant, 1) is None
    before = [point.seconds for point in store.rows(ScorePoint)]

    training = PongTraining(harness(small), variant, 1)
    assert (training.vector_step, training.buffer.filled, training.interruptions) == (15, 0, 1)
    with EnergyMeter("cpu", idle_seconds=0.0) as meter:
        training.train(meter, lambda share, score: None)
    training.agent.close()
    assert training.buffer.filled == small.warm_up_vector_steps + 5
    assert (training.vector_step, training.agent.step) == (20, 10)
    points = store.rows(ScorePoint)
    assert [point.frames for point in points] == [80, 160, 240, 320]
    assert [point.seconds for point in points[:3]] == before
    assert points[3].seconds > before[-1]
    assert points[3].episodes - points[2].episodes == 2 * 4  # those that ended in the refill are not counted


def test_a_run_that_was_killed_before_its_record_is_not_trained_again(harness: MakeHarness, small: DqnSettings) -> None:
    def die_at_the_end(share: float, score: float | None) -> None:
        if share == 1.0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_on_pong(harness(small, points=1), "static-90/block=32", 0, die_at_the_end)
    run = train_on_pong(harness(small, points=1), "static-90/block=32", 0)
    assert (run.steps, run.interruptions) == (10, 1)
    assert run.seconds == harness(small).store.rows(ScorePoint)[-1].seconds
