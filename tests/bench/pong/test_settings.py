"""Lengths that follow from the settings, and settings that are refused."""

import pytest

from acf.bench.pong.settings import DqnSettings
from acf.errors import DataError


def test_frames_give_vector_steps_and_optimizer_steps() -> None:
    settings = DqnSettings(frames=1_000_000, games=50, update_every=10, warm_up=20_000)
    assert (settings.vector_steps, settings.warm_up_vector_steps) == (5_000, 400)
    assert settings.steps == (5_000 - 400) * 5
    assert settings.frames_after(settings.vector_steps) == 1_000_000


def test_exploration_falls_to_its_end_and_stays() -> None:
    settings = DqnSettings(frames=1_000_000, games=50, update_every=10, explore=0.5, epsilon=0.1)
    rates = [settings.epsilon_at(vector_step) for vector_step in (0, 1_250, 2_500, 4_999)]
    assert rates == pytest.approx([1.0, 0.55, 0.1, 0.1])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"games": 64, "update_every": 24}, "update_every 24 does not divide the 64 games"),
        ({"frames": 60_000}, "60000 frames are 14976 transitions, which end within the warm-up of 20000"),
        ({"precision": "fp8"}, "precision 'fp8' is not one of tf32, bf16"),
        ({"capacity": 10_000}, "warm_up 20000 is more than the capacity 10000 holds"),
        ({"rate": 0.0}, "rate 0 is not above 0"),
        ({"start": "zero"}, "start 'zero' is not one of he, torch"),
    ],
)
def test_settings_that_cannot_train_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        DqnSettings(**wrong)  # type: ignore[arg-type]
