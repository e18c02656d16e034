"""The score: mean points over the last finished episodes."""

from collections import deque
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from acf.bench.pong.environment import Played
from acf.bench.pong.record import SCORED_EPISODES


class ScoreBoard:
    """Points of the running episodes, and of the last 100 finished ones.

    >>> board = ScoreBoard(games=1)
    >>> float(board.add(Played(np.zeros((1, 2, 2), np.uint8), np.ones(1, np.float32), np.ones(1, bool)))[0])
    1.0
    >>> board.episodes, list(board.last), board.score
    (1, [1.0], None)
    """

    def __init__(self, games: int) -> None:
        self.running = np.zeros(games, dtype=np.float64)
        self.last: deque[float] = deque(maxlen=SCORED_EPISODES)
        self.episodes = 0

    def add(self, played: Played, counted: bool = True) -> NDArray[np.float64]:
        """Count the rewards of one step; returns the points of the episodes that ended.

        Where they are not ``counted``, finished episodes leave the score as it is.
        """
        self.running += played.rewards
        finished: NDArray[np.float64] = self.running[played.ended]
        self.running[played.ended] = 0.0
        if counted:
            self.last.extend(float(points) for points in finished)
            self.episodes += len(finished)
        return finished

    @property
    def score(self) -> float | None:
        """The mean over the last 100 episodes; None before as many have finished."""
        return mean(self.last) if len(self.last) == SCORED_EPISODES else None
