"""The live view in the terminal."""

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import acf
from acf.metrics.run_history import MovePoint, RunHistory, RunReader, StepPoint
from acf.report.watch import terminal
from acf.report.watch.pictures import mask_lines, shrunk


def shown(history: RunHistory) -> str:
    console = Console(width=120, record=True, file=StringIO())
    console.print(terminal.view(history))
    return console.export_text()


def history_of(steps: int) -> RunHistory:
    points = [StepPoint(step, 0.5 * step, 1.0 / step, 20.0 * step, {"accuracy": 0.5}) for step in range(1, steps + 1)]
    moves = [MovePoint(steps, {"fc": {"flip_rate": 0.25}}, {"fc": np.eye(16, dtype=bool)})]
    return RunHistory("mine", total_steps=100, steps=points, moves=moves, is_written=True)


def test_the_view_has_every_figure_and_the_masks() -> None:
    text = shown(history_of(10))
    assert any(line.startswith("step ") for line in text.splitlines())
    for part in ("mine", "running", "10 of 100", "500", "0:00:45", "200 J", "93.8%", "25.0%", "accuracy", "█", "fc"):
        assert part in text


def test_what_a_terminal_would_obey_in_the_log_of_a_run_is_shown() -> None:
    point = StepPoint(1, 0.5, 1.0, 20.0, {"score\x1b[2J": 0.5})
    move = MovePoint(1, {"fc\x1b[2J": {"flip_rate": 0.25}}, {"fc\x1b[2J": np.eye(16, dtype=bool)})
    text = shown(RunHistory("mine\x1b[2J", total_steps=2, steps=[point], moves=[move], is_written=True))
    assert all(f"{name}\\x1b[2J" in text for name in ("score", "mine", "fc"))
    assert "\x1b[2J" not in text


def test_a_run_that_has_not_begun_is_shown_too() -> None:
    assert "ended without a word" in shown(RunHistory("empty"))


def test_without_a_terminal_the_run_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with acf.RunLog(tmp_path, every=1) as log:
        log.step(1, 0.5)
        terminal.watch_in_terminal(RunReader(tmp_path), seconds=1.0)
    assert "running" in capsys.readouterr().out


def test_in_a_terminal_watching_ends_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=100, file=StringIO())
    monkeypatch.setattr(terminal, "Console", lambda: console)
    log = acf.RunLog(tmp_path, every=1)
    looks: list[float] = []

    def train_on(seconds: float) -> None:
        looks.append(seconds)
        log.step(len(looks), 0.5)
        if len(looks) == 3:
            log.close()

    history = terminal.watch_in_terminal(RunReader(tmp_path), 0.25, train_on)
    assert (history.state, history.step, looks) == ("finished", 3, [0.25] * 3)


def test_a_large_mask_keeps_its_density_in_a_small_picture() -> None:
    mask = np.random.default_rng(0).random((130, 70)) < 0.3
    small = shrunk(mask, 10, 7)
    assert small.shape == (10, 7)
    assert small.mean() == pytest.approx(mask.mean())
    assert len(mask_lines(mask)) == 8
