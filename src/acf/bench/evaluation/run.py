"""What is kept of one run of one system, and of one traced step on one simulated machine."""

from dataclasses import asdict, dataclass, field
from typing import Any

from acf.bench.training.run import CurvePoint, without_nan
from acf.records import Diverged, read_as

STAGES = ("start", "middle", "end")
"""When a step of a run is traced: after a twentieth of its steps, after half of them, and after the last.

Before the first step gradients say little: those of a residual branch that starts with a scale of 0 are all zeros.
"""

START_DIVISOR = 20
"""The first trace comes after the steps of a run over this."""


@dataclass(frozen=True)
class LossPoint:
    """Mean training loss of the steps since the point before, up to ``step``."""

    step: int
    loss: Diverged


@dataclass(frozen=True)
class SystemRun:
    """One finished run.

    ``seconds`` and ``joules`` are of the training loop, without compilation, the first step and measurements of
    quality; ``timed_steps`` are the steps they cover. ``metrics`` are of the trained model, ``outputs`` what it says
    about the test part. ``losses`` are of training, smoothed. ``session`` is the index of the record's session that
    finished it, ``resumed`` how often it was taken up again, ``processes`` how many trained together.
    """

    system: str
    seed: int
    steps: int
    timed_steps: int
    seconds: float
    examples_per_step: float
    compile_seconds: float
    joules: float | None
    energy_source: str
    peak_gib: float
    sparsity: float
    parameters: int
    moves: int
    metrics: dict[str, Diverged]
    curve: tuple[CurvePoint, ...] = ()
    outputs: tuple[str, ...] = ()
    session: int = 0
    resumed: int = 0
    losses: tuple[LossPoint, ...] = ()
    processes: int = 1

    @property
    def step_seconds(self) -> float:
        """Mean seconds of a step."""
        return self.seconds / max(1, self.timed_steps)

    @property
    def examples_per_s(self) -> float:
        """Throughput in units of the task."""
        return self.examples_per_step / self.step_seconds

    @property
    def step_joules(self) -> float | None:
        """Mean joules of a step; None where nothing was measured."""
        return None if self.joules is None else self.joules / max(1, self.timed_steps)

    @property
    def quality(self) -> float:
        """The headline metric, the first one."""
        return next(iter(self.metrics.values()))

    def to_dict(self) -> dict[str, Any]:
        """Plain values; None for what is not finite."""
        plain: dict[str, Any] = without_nan(asdict(self))
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "SystemRun":
        """Read what `to_dict` gave."""
        run = read_as(cls, values, "run")
        if run.steps < 1 or run.timed_steps < 0 or not run.seconds > 0 or not run.metrics:
            raise ValueError(f"run of {run.system} has {run.timed_steps} timed steps in {run.seconds} seconds")
        return run


@dataclass(frozen=True)
class MachineStep:
    """The step of ``system`` that was traced at ``stage``, on a simulated ``machine``.

    ``examples`` are units of the task in the traced step; seconds, joules and utilisation are of the whole step.
    """

    system: str
    stage: str
    machine: str
    examples: float
    step_seconds: float
    energy_j: float
    utilization: float
    notes: tuple[str, ...] = field(default_factory=tuple)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "MachineStep":
        """Read what `to_dict` gave."""
        return read_as(cls, values, "machine")
