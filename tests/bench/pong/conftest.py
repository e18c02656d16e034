"""A game that needs no emulator: the action must name the side of the screen that is bright."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from acf.bench.pong.environment import Played
from acf.bench.pong.loop import Harness
from acf.bench.pong.settings import DqnSettings
from acf.bench.pong.store import PongStore

EPISODE = 3
"""Steps of an episode."""


class BrightSide:
    """Every frame is bright on the left or on the right; action 0 or 1 names the side and earns a point."""

    actions, name = 2, "bright side"

    def __init__(self, games: int, threads: int = 0) -> None:
        self.games = games
        self.random = np.random.default_rng(0)
        self.sides = np.zeros(games, dtype=np.int64)
        self.steps = 0

    def reset(self, seed: int) -> NDArray[np.uint8]:
        self.random, self.steps = np.random.default_rng(seed), 0
        return self._draw()

    def send(self, actions: NDArray[np.int64]) -> None:
        self.steps += 1
        self.rewards = np.where(actions == self.sides, 1, -1).astype(np.float32)

    def receive(self) -> Played:
        ended = np.full(self.games, self.steps % EPISODE == 0)
        return Played(self._draw(), self.rewards, ended)

    def close(self) -> None:
        pass

    def _draw(self) -> NDArray[np.uint8]:
        self.sides = self.random.integers(0, 2, self.games)
        frames = np.zeros((self.games, 84, 84), dtype=np.uint8)
        frames[self.sides == 0, :, :42] = 255
        frames[self.sides == 1, :, 42:] = 255
        return frames


@pytest.fixture
def small() -> DqnSettings:
    """A run of 20 steps of 4 games, the last 10 of which learn."""
    return DqnSettings(
        frames=320, games=4, update_every=4, batch=4, capacity=64, warm_up=40, target_every=3, n_step=1, rate=1e-3
    )


@pytest.fixture
def harness(tmp_path: Path) -> Callable[..., Harness]:
    """A harness for given settings, with records in a temporary folder."""

    def make(settings: DqnSettings, **more: object) -> Harness:
        store = PongStore(tmp_path / "runs")
        facts = {"points": 4, "captured": 0, "evaluates": False} | more
        return Harness(settings, BrightSide(settings.games), torch.device("cpu"), store, **facts)  # type: ignore[arg-type]

    return make
