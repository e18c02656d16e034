"""What a run of Pong took and what came out of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any

from acf.bench.training.run import CurvePoint, seconds_to

TARGET_SCORE = 15.0
"""Score whose time is reported; a game of Pong ends with 21 points on one side, so scores reach from -21 to 21."""

SCORED_EPISODES = 100
"""Episodes, the last ones, over which a score is the mean."""


@dataclass(frozen=True)
class ScorePoint:
    """A run after ``frames`` emulator frames and ``steps`` optimizer steps.

    ``score`` is the mean over the last 100 finished episodes, played with random actions at the rate ``epsilon``; None
    before there are as many. ``seconds`` and ``joules`` are those of playing and learning up to there. ``loss`` is the
    last one, None before the first step.
    """

    variant: str
    seed: int
    frames: int
    steps: int
    seconds: float
    joules: float | None
    score: float | None
    episodes: int
    epsilon: float
    loss: float | None


@dataclass(frozen=True)
class PongRun:
    """One finished run.

    ``seconds`` and ``joules`` are those of playing and learning: compilation, records, checkpoints, captured traces
    and the final evaluation are not in them. ``score`` is that of the last `ScorePoint`; ``evaluation`` the mean over
    the first ``evaluated`` episodes of as many games after training, with 1 % random actions. ``interruptions`` counts
    how often the run was continued from a checkpoint. ``session`` is the number of the session that finished it.
    """

    variant: str
    seed: int
    frames: int
    steps: int
    seconds: float
    joules: float | None
    idle_watts: float | None
    energy_source: str
    score: float | None
    evaluation: float | None
    evaluated: int
    sparsity: float
    parameters: int
    moves: int
    peak_gib: float
    compile_seconds: float
    interruptions: int
    session: int = 0

    @property
    def frames_per_s(self) -> float:
        """Emulator frames for each second of playing and learning."""
        return self.frames / self.seconds

    @property
    def joules_per_step(self) -> float | None:
        """Joules of playing and learning over the optimizer steps; None where no counter can be read."""
        return None if self.joules is None else self.joules / self.steps

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"frames_per_s": self.frames_per_s, "joules_per_step": self.joules_per_step}


@dataclass(frozen=True)
class SystemFigures:
    """One captured step on one modelled machine; ``moment`` is start, middle or end of the run.

    ``utilization`` (U), ``step_seconds`` and ``energy_j`` are of the whole captured step of ``examples`` transitions:
    forward and backward pass and the update.
    """

    variant: str
    seed: int
    moment: str
    machine: str
    utilization: float
    cycles: int
    step_seconds: float
    energy_j: float
    examples: int


@dataclass(frozen=True)
class PongSummary:
    """All runs of one variant: means over seeds, deviations where there are two or more.

    ``seconds_to_target`` is the mean time to the target score over the ``reached`` runs that got there.
    """

    variant: str
    runs: int
    frames_per_s: float
    seconds: float
    score: float | None
    score_deviation: float | None
    evaluation: float | None
    seconds_to_target: float | None
    reached: int
    joules_per_step: float | None
    energy_source: str
    sparsity: float
    moves: float
    peak_gib: float


def seconds_to_score(points: Sequence[ScorePoint], score: float = TARGET_SCORE) -> float | None:
    """Seconds of playing and learning until ``score`` was reached, between points by straight lines; None if never."""
    curve = [CurvePoint(point.steps, point.seconds, point.score) for point in points if point.score is not None]
    return seconds_to(curve, score, higher_is_better=True)


def summarize(runs: Sequence[PongRun], points: Sequence[ScorePoint]) -> PongSummary:
    """The row of one variant's ``runs`` and the ``points`` of all of them."""
    times = [seconds_to_score([point for point in points if point.seed == run.seed]) for run in runs]
    reached = [seconds for seconds in times if seconds is not None]
    scores = [run.score for run in runs if run.score is not None]
    return PongSummary(
        variant=runs[0].variant,
        runs=len(runs),
        frames_per_s=mean(run.frames_per_s for run in runs),
        seconds=mean(run.seconds for run in runs),
        score=mean(scores) if scores else None,
        score_deviation=stdev(scores) if len(scores) > 1 else None,
        evaluation=_mean_of(run.evaluation for run in runs),
        seconds_to_target=mean(reached) if reached else None,
        reached=len(reached),
        joules_per_step=_mean_of(run.joules_per_step for run in runs),
        energy_source=runs[0].energy_source,
        sparsity=mean(run.sparsity for run in runs),
        moves=mean(run.moves for run in runs),
        peak_gib=max(run.peak_gib for run in runs),
    )


def _mean_of(values: Any) -> float | None:
    """The mean; None where a value is missing."""
    known = list(values)
    return None if any(value is None for value in known) else mean(known)
