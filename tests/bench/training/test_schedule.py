"""Runs by steps and by the clock."""

from fractions import Fraction

import pytest

from acf.bench.training.schedule import ClockSchedule, StepSchedule


def test_parts_of_a_run_by_steps_begin_after_the_warm_up() -> None:
    schedule = StepSchedule(26)
    schedule.start(6)
    assert [schedule.steps_until(Fraction(part, 4), 6) for part in (1, 2, 3, 4)] == [5, 10, 15, 20]
    assert schedule.steps_until(Fraction(1, 4), 11) == 0


def play(schedule: ClockSchedule, step_seconds: float) -> tuple[int, float]:
    """Steps and seconds of a machine whose steps take ``step_seconds``."""
    step, seconds = 6, 0.0
    schedule.start(step)
    while (steps := schedule.steps_until(Fraction(1), step)) > 0:
        step, seconds = step + steps, seconds + steps * step_seconds
        schedule.read_clock(step, seconds)
    return step, seconds


@pytest.mark.parametrize("step_seconds", [0.013, 0.04, 0.9])
def test_a_run_by_the_clock_ends_in_time_whatever_was_estimated(step_seconds: float) -> None:
    schedule = ClockSchedule(5.0, step_seconds=0.02)
    assert schedule.total_steps == 250
    _, seconds = play(schedule, step_seconds)
    assert seconds == pytest.approx(5.0, abs=0.51 * step_seconds)


def test_the_rate_by_the_clock_rises_for_a_fifth_of_the_time_and_ends_near_zero() -> None:
    schedule = ClockSchedule(10.0, step_seconds=0.1)
    schedule.start(6)
    schedule.read_clock(11, 1.0)
    assert schedule.factor(11) == pytest.approx(0.5, abs=1e-3)
    schedule.read_clock(16, 2.0)
    assert schedule.factor(16) == pytest.approx(1.0, abs=1e-3)
    assert schedule.step_seconds == pytest.approx(0.2)
    assert schedule.factor(36) == pytest.approx(0.5, abs=1e-3)  # 20 steps of 0.2 s later
    schedule.read_clock(56, 10.0)
    assert 0.0 < schedule.factor(56) < 1e-3


def test_the_first_step_is_taken_even_if_it_is_longer_than_the_run() -> None:
    assert play(ClockSchedule(0.1, step_seconds=1.0), 1.0) == (7, 1.0)
