"""Real games of Pong, where the emulator is installed."""

import numpy as np
import pytest

from acf.bench.pong.environment import AtariPong

pytest.importorskip("ale_py", reason="ale-py is not installed; it comes with the extra rl")
pytest.importorskip("gymnasium", reason="gymnasium is not installed; it comes with the extra rl")


def test_games_of_pong_give_frames_rewards_and_ends() -> None:
    games = AtariPong(2, threads=1)
    first = games.reset(seed=5)
    assert games.actions == 6
    assert first.shape == (2, 84, 84)
    assert first.dtype == np.uint8
    played = []
    for _ in range(40):
        games.send(np.zeros(2, dtype=np.int64))
        played.append(games.receive())
    games.close()
    assert {each.frames.shape for each in played} == {(2, 84, 84)}
    assert any(not np.array_equal(each.frames, first) for each in played)
    assert sum(float(each.rewards.sum()) for each in played) <= 0.0  # a paddle that stands still wins nothing here
    assert not any(each.ended.any() for each in played)


def test_the_same_seed_gives_the_same_game() -> None:
    frames = []
    for _ in range(2):
        games = AtariPong(1, threads=1)
        games.reset(seed=3)
        for _ in range(20):
            games.send(np.full(1, 2, dtype=np.int64))
            newest = games.receive().frames.copy()
        frames.append(newest)
        games.close()
    assert np.array_equal(*frames)
