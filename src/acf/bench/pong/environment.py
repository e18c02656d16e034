"""Many games of Pong at a time: what the learner needs of a vector environment, and Atari's through ale-py."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from acf.extras import import_optional, require

FRAME_SKIP = 4
"""Emulator frames for which an action is held, as in ALE/Pong-v5."""

STICKY_ACTIONS = 0.25
"""Probability that the emulator repeats the last action instead of the new one, as in ALE/Pong-v5."""


BACKGROUND = 87 / 255
"""Grey value of Pong's playing field, the pixels of a frame that no bat, ball or wall covers, as a share of white."""


@dataclass(frozen=True)
class Played:
    """What one step of all games gave.

    ``frames`` uint8 ``[games, height, width]``: the newest frame of each, the first of a new episode where one has
    ``ended``; ``rewards`` float32 ``[games]``; ``ended`` bool ``[games]``.
    """

    frames: NDArray[np.uint8]
    rewards: NDArray[np.float32]
    ended: NDArray[np.bool_]


class VectorEnvironment(Protocol):
    """Games that are played side by side and start again by themselves."""

    games: int
    actions: int
    name: str

    def reset(self, seed: int) -> NDArray[np.uint8]:
        """Start every game anew; the first frames ``[games, height, width]``."""

    def send(self, actions: NDArray[np.int64]) -> None:
        """Begin a step with one action for each game; the games may run while the caller does other work."""

    def receive(self) -> Played:
        """Wait for the step that `send` began."""

    def close(self) -> None:
        """Let go of the games."""


class AtariPong:
    """``games`` games of ALE/Pong-v5 in threads of the emulator: 84 x 84 grey frames, 4 emulator frames a step.

    Frames are the maximum of the last two emulator frames. An episode begins with up to 30 random no-ops, and with
    probability 0.25 an action is ignored in favour of the one before.
    """

    def __init__(self, games: int, threads: int = 0) -> None:
        vector_env = _vector_env()
        from gymnasium.vector import AutoresetMode

        self._env = vector_env(
            "pong",
            games,
            num_threads=threads,
            stack_num=1,
            frameskip=FRAME_SKIP,
            repeat_action_probability=STICKY_ACTIONS,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        self.games, self.actions = games, int(self._env.single_action_space.n)
        self.name = "ALE/Pong-v5"

    def reset(self, seed: int) -> NDArray[np.uint8]:
        """Start every game anew; game i has the seed ``seed + i``."""
        frames, _ = self._env.reset(seed=seed)
        return _newest(frames)

    def send(self, actions: NDArray[np.int64]) -> None:
        """Begin a step."""
        self._env.send(actions)

    def receive(self) -> Played:
        """Wait for the step."""
        frames, rewards, terminated, truncated, _ = self._env.recv()
        return Played(_newest(frames), np.asarray(rewards, dtype=np.float32), np.asarray(terminated | truncated))

    def close(self) -> None:
        """Let go of the emulators."""
        self._env.close()


def _newest(frames: Any) -> NDArray[np.uint8]:
    newest: NDArray[np.uint8] = np.asarray(frames)[:, -1]
    return newest


def _vector_env() -> Any:
    require("ale_py", "gymnasium", needed_by="Pong")
    return import_optional("ale_py.vector_env", needed_by="Pong").AtariVectorEnv
