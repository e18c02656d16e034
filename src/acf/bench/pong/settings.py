"""The settings of the learner: sizes and rates that dense and sparse runs share."""

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from acf.bench.pong.environment import FRAME_SKIP
from acf.bench.pong.replay import ReplaySpec
from acf.errors import DataError
from acf.options import option

PRECISIONS = ("tf32", "bf16")
STARTS = ("he", "torch")

BEFORE = {"start": "torch"}
"""Settings that records lack which are older than the setting, and what they were."""


@dataclass(frozen=True)
class DqnSettings:
    """Double DQN with n-step returns and Adam, on many games at a time.

    A vector step is one step of all ``games``, as many transitions. After ``warm_up`` transitions there is one
    optimizer step for every ``update_every`` transitions. Exploration falls from 1 to ``epsilon`` over the first
    ``explore`` of the frames.
    """

    frames: int = option(8_000_000, "Emulator frames of a run, 4 for each action.", min=1)
    games: int = option(64, "Games that are played side by side.", min=1)
    batch: int = option(256, "Transitions of an optimizer step.", min=1)
    rate: float = option(2.5e-4, "Learning rate of Adam, of variants that name none.", min=0)
    update_every: int = option(16, "Transitions for each optimizer step; divides the games.", min=1)
    target_every: int = option(500, "Optimizer steps between two copies into the target network.", min=1)
    n_step: int = option(3, "Steps of a return.", min=1)
    discount: float = option(0.99, "Discount of a step.", min=0, max=1)
    capacity: int = option(500_000, "Transitions in the replay buffer, 7 KB each.", min=1)
    warm_up: int = option(20_000, "Transitions before the first optimizer step.", min=1)
    epsilon: float = option(0.01, "Share of random actions after exploration.", min=0, max=1)
    explore: float = option(0.1, "Part of the frames over which exploration falls.", min=0, max=1)
    precision: str = option("tf32", "Products on a GPU: tf32 or bf16; a CPU computes in float32.")
    start: str = option(
        "he", "The network's first weights: he (He et al., 2015; the playing field's grey is 0) or torch (torch's own)."
    )

    def __post_init__(self) -> None:
        if self.games % self.update_every:
            raise DataError(f"update_every {self.update_every} does not divide the {self.games} games; use a divisor")
        if self.precision not in PRECISIONS:
            raise DataError(f"precision {self.precision!r} is not one of {', '.join(PRECISIONS)}; use one of these")
        if self.start not in STARTS:
            raise DataError(f"start {self.start!r} is not one of {', '.join(STARTS)}; use one of these")
        if self.rate <= 0:
            raise DataError(f"rate {self.rate:g} is not above 0; use such as 2.5e-4")
        if self.steps < 1:
            raise DataError(
                f"{self.frames} frames are {self.vector_steps * self.games} transitions, which end within the "
                f"warm-up of {self.warm_up}; use more frames or a shorter warm-up"
            )
        self.replay  # noqa: B018  # refuses a capacity that is too small
        if self.replay.slots < self.warm_up_vector_steps:
            raise DataError(
                f"warm_up {self.warm_up} is more than the capacity {self.capacity} holds; use a shorter warm-up"
            )

    @property
    def vector_steps(self) -> int:
        """Vector steps of a run."""
        return self.frames // (FRAME_SKIP * self.games)

    @property
    def warm_up_vector_steps(self) -> int:
        """Vector steps before the first optimizer step."""
        return max(ceil(self.warm_up / self.games), self.replay.stack + self.replay.n_step)

    @property
    def steps_per_vector_step(self) -> int:
        """Optimizer steps for each vector step."""
        return self.games // self.update_every

    @property
    def steps(self) -> int:
        """Optimizer steps of a run."""
        return (self.vector_steps - self.warm_up_vector_steps) * self.steps_per_vector_step

    @property
    def replay(self) -> ReplaySpec:
        """The buffer."""
        return ReplaySpec(self.capacity, self.games, n_step=self.n_step, discount=self.discount)

    def frames_after(self, vector_steps: int) -> int:
        """Emulator frames of so many vector steps."""
        return vector_steps * self.games * FRAME_SKIP

    def epsilon_at(self, vector_step: int) -> float:
        """Share of random actions in this vector step, counted from 0.

        >>> DqnSettings(frames=1_000_000, explore=0.5).epsilon_at(0)
        1.0
        """
        falling = max(1, round(self.explore * self.vector_steps))
        return max(self.epsilon, 1.0 - (1.0 - self.epsilon) * vector_step / falling)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)
