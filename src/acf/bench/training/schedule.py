"""How far a run has come, by steps or by the clock, and the learning rate that follows from it."""

from fractions import Fraction
from typing import Protocol

from acf.bench.accuracy.training import rise_and_fall

CLOCK_SECONDS = 0.5
"""How often a run of fixed time looks at the clock, which takes a synchronisation."""

FIRST_STEPS = 2
"""Steps before the first look at the clock, since the estimate of a step's time may be far off."""

_PARTS = 10_000


class Schedule(Protocol):
    """The course of one run. ``total_steps`` is exact, or an estimate where the clock ends the run."""

    total_steps: int

    def factor(self, step: int) -> float:
        """Factor on the peak learning rate at ``step``, counted from 0: it rises for a fifth of the run, then falls."""

    def start(self, step: int) -> None:
        """The warm-up is over, and the timed part begins at ``step``."""

    def steps_until(self, part: Fraction, step: int) -> int:
        """Steps to take before the clock is read again; 0 when ``part`` of the timed part is done."""

    def read_clock(self, step: int, seconds: float) -> None:
        """Hear that the timed part has taken ``seconds`` up to ``step``."""


class StepSchedule:
    """A run of ``total_steps``."""

    def __init__(self, total_steps: int) -> None:
        self.total_steps = total_steps
        self._start = 0

    def factor(self, step: int) -> float:
        """By the step."""
        return rise_and_fall(step, self.total_steps)

    def start(self, step: int) -> None:
        """Parts of the run are counted from here."""
        self._start = step

    def steps_until(self, part: Fraction, step: int) -> int:
        """All steps of the part at once."""
        return self._start + int(part * (self.total_steps - self._start)) - step

    def read_clock(self, step: int, seconds: float) -> None:
        """Time plays no part."""


class ClockSchedule:
    """A run of ``seconds`` of training; between two looks at the clock, progress follows the last step time.

    The learning rate follows the clock too, so that it has fallen to its end when the time is over, however long
    steps and moves of blocks took. ``step_seconds`` is a first estimate.
    """

    def __init__(self, seconds: float, step_seconds: float) -> None:
        self.budget_seconds, self.step_seconds = seconds, step_seconds
        self.total_steps = max(2, round(seconds / step_seconds))
        self._step, self._seconds = 0, 0.0

    def factor(self, step: int) -> float:
        """By the clock."""
        seconds = self._seconds + (step - self._step) * self.step_seconds
        part = min(max(seconds / self.budget_seconds, 0.0), 1.0)
        return rise_and_fall(min(int(part * _PARTS), _PARTS - 1), _PARTS)

    def start(self, step: int) -> None:
        """The clock starts here; the steps before had the rates of the run's beginning."""
        self._step, self._seconds = step, 0.0

    def steps_until(self, part: Fraction, step: int) -> int:
        """Half a second's steps, or what is left, to the nearest step; the first step is always taken."""
        left = float(part) * self.budget_seconds - self._seconds
        if self._seconds == 0.0:
            return max(1, min(FIRST_STEPS, round(left / self.step_seconds)))
        if left < 0.5 * self.step_seconds:
            return 0
        return max(1, round(min(left, CLOCK_SECONDS) / self.step_seconds))

    def read_clock(self, step: int, seconds: float) -> None:
        """Take over time and step time."""
        if step > self._step:
            self.step_seconds = (seconds - self._seconds) / (step - self._step)
        self._step, self._seconds = step, seconds
