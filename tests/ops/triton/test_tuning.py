"""Choosing launch configurations: remembered per problem, on disk, and never while blocks move."""

import importlib.util
from contextlib import nullcontext
from pathlib import Path

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed (it comes with CUDA builds of torch)", allow_module_level=True)

import torch

import acf
from acf.ops.triton import tuning
from acf.ops.triton.tuning import LaunchConfig, ProblemKey, Tuner

SLOW, FAST = LaunchConfig("gather", tile=64), LaunchConfig("descriptor", tile=128)
KEY = ProblemKey("forward", 1024, 512, 64, "torch.bfloat16", "tf32", 7, 13)


@pytest.fixture(autouse=True)
def _device_that_prefers_fast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("ACF_AUTOTUNE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Test GPU 1")
    monkeypatch.setattr(tuning, "compile_together", lambda candidates, launch: None)
    monkeypatch.setattr(tuning, "time_launch", lambda config, launch: (launch(config), 2.0 - (config == FAST))[1])


def choose(tuner: Tuner, launched: list[LaunchConfig], signature: str = "layer") -> LaunchConfig:
    return tuner.choose(signature, lambda: KEY, (SLOW, FAST), launched.append)


def test_the_fastest_candidate_is_timed_once_and_remembered() -> None:
    tuner, launched = Tuner(), []
    assert [choose(tuner, launched) for _ in range(3)] == [FAST] * 3
    assert launched == [SLOW, FAST]


def test_candidates_that_come_close_are_timed_again_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    lucky, steady, far = (LaunchConfig("gather", tile=tile) for tile in (64, 128, 256))
    answers = {lucky: iter([1.0, 1.2, 1.3, 1.2]), steady: iter([1.05, 1.1, 1.1, 1.4]), far: iter([1.2])}
    timed: list[LaunchConfig] = []
    monkeypatch.setattr(tuning, "time_launch", lambda config, launch: (timed.append(config), next(answers[config]))[1])
    assert Tuner().choose("layer", lambda: KEY, (lucky, steady, far), lambda config: None) == steady
    assert timed == [lucky, steady, far] + 3 * [lucky, steady]


def test_another_process_and_another_token_count_find_the_choice_on_disk() -> None:
    choose(Tuner(), [])
    launched: list[LaunchConfig] = []
    assert choose(Tuner(), launched, "same bucket, other token count") == FAST
    assert launched == []


def test_a_broken_cache_file_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "tuning-Test-GPU-1.json").write_text("{")
    launched: list[LaunchConfig] = []
    assert choose(Tuner(), launched) == FAST
    assert launched == [SLOW, FAST]


def test_a_stored_choice_that_is_no_longer_offered_is_tuned_again() -> None:
    choose(Tuner(), [])
    launched: list[LaunchConfig] = []
    assert Tuner().choose("layer", lambda: KEY, (SLOW,), launched.append) == SLOW
    assert launched == [SLOW]


def test_nothing_is_timed_during_graph_capture_and_the_default_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    tuner, launched = Tuner(), []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert choose(tuner, launched) == SLOW
    assert launched == []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert choose(tuner, launched) == FAST


def test_autotuning_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACF_AUTOTUNE", "0")
    launched: list[LaunchConfig] = []
    assert choose(Tuner(), launched) == SLOW
    assert launched == []


def test_a_step_that_is_traced_once_is_not_tuned() -> None:
    tuner, launched = Tuner(), []
    model = torch.nn.Linear(2, 2)
    with acf.capture(model):
        model(torch.ones(1, 2)).sum().backward()
        assert choose(tuner, launched) == SLOW
    assert launched == []
    assert choose(tuner, launched) == FAST


def test_moving_blocks_does_not_change_the_key() -> None:
    assert tuning.density_bucket(819, 128, 64) == tuning.density_bucket(800, 128, 64)
    assert tuning.token_bucket(8192) == tuning.token_bucket(8000)


def test_candidates_are_launched_once_each_without_gradients_before_they_are_timed_and_one_may_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "the caller's")
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    launched: list[tuple[LaunchConfig, bool]] = []

    def launch(config: LaunchConfig) -> None:
        launched.append((config, torch.is_grad_enabled()))
        if config == SLOW:
            raise RuntimeError("out of shared memory")

    tuning.compile_together((SLOW, FAST), launch)
    assert sorted(launched, key=lambda each: each[0].tile) == [(SLOW, False), (FAST, False)]
