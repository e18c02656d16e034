"""The log of a run: what is written, what a killed process leaves, and what is refused."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import acf
from acf.errors import FileError
from acf.metrics.run_history import RunReader
from acf.metrics.run_log import LOG_FILE, RunLogWarning


def sparse_model() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
    acf.sparsify_(model, acf.BlockSparsity(0.75, block=8))
    return model


def train(folder: Path, steps: int, every: int = 2) -> nn.Sequential:
    """Train a small model whose blocks move at every second step."""
    model = sparse_model()
    optimizer = torch.optim.AdamW(model.parameters())
    with acf.RunLog(folder, model, total_steps=steps, every=every) as log:
        acf.attach(model, optimizer, acf.BlockDST(total_steps=100, every=2, fraction=0.5), on_move=log)
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            loss = (model(torch.randn(16, 32)) - 1).square().mean()
            loss.backward()
            optimizer.step()
            log.step(step, loss)
    return model


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / LOG_FILE).read_text().splitlines()]


def test_a_run_writes_its_start_steps_moves_and_end(tmp_path: Path) -> None:
    train(tmp_path, steps=4)
    assert [(each["kind"], each.get("step")) for each in lines(tmp_path)] == [
        ("start", None),
        ("step", 1),
        ("move", 2),
        ("step", 2),
        ("move", 4),
        ("step", 4),
        ("end", None),
    ]


def test_masks_are_read_back_as_they_were(tmp_path: Path) -> None:
    model = train(tmp_path, steps=4)
    first, *_, last = RunReader(tmp_path).update().moves
    assert set(last.masks) == {"0", "2"}
    for name, mask in last.masks.items():
        assert np.array_equal(mask, model.get_submodule(name).mask().numpy())
    start = sparse_model()
    assert np.array_equal(first.masks["0"], start[0].mask().numpy())
    assert not np.array_equal(first.masks["0"], last.masks["0"])
    assert last.sparsity == 0.75
    assert last.flip_rate is not None
    assert 0 < last.flip_rate < 1


def test_measurements_are_recorded_whatever_the_step_and_a_diverged_loss_has_no_value(tmp_path: Path) -> None:
    with acf.RunLog(tmp_path, every=100) as log:
        log.step(7, float("nan"), accuracy=0.5)
        log.step(8, 0.1)
    points = RunReader(tmp_path).update().steps
    assert [(point.step, point.loss, point.measured) for point in points] == [(7, None, {"accuracy": 0.5})]


def test_an_error_is_written_down_and_goes_on_its_way(tmp_path: Path) -> None:
    def crash() -> None:
        with acf.RunLog(tmp_path, total_steps=10, every=1) as log:
            log.step(3, 0.5)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        crash()
    assert RunReader(tmp_path).update().state == "failed at step 3: ZeroDivisionError: division by zero"


def test_ctrl_c_is_written_down_as_an_interruption(tmp_path: Path) -> None:
    def interrupted() -> None:
        with acf.RunLog(tmp_path, total_steps=10, every=1) as log:
            log.step(3, 0.5)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert RunReader(tmp_path).update().state == "interrupted at step 3"


def test_a_second_writer_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    with acf.RunLog(tmp_path), pytest.raises(FileError, match="is being written by another process"):
        acf.RunLog(tmp_path)
    acf.RunLog(tmp_path).close()


def test_a_full_disk_ends_the_log_and_not_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = acf.RunLog(tmp_path, every=1)

    def full(file: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.warns(RunLogWarning, match="No space left"):
        log.step(1, 0.5)
    with warnings.catch_warnings(action="error"):
        log.step(2, 0.5)
        log.close()


def test_only_rank_0_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    with acf.RunLog(tmp_path / "run", every=1) as log:
        log.step(1, 0.5)
        log(1, [])
    assert not (tmp_path / "run").exists()


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="every 0 is below 1"):
        acf.RunLog(tmp_path, every=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        acf.RunLog(tmp_path / "file")


KILLED = """
import os, signal, sys
from acf.metrics import RunLog
log = RunLog(sys.argv[1], total_steps=100, every=1)
for step in range(1, 6):
    log.step(step, 1.0 / step)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_every_step_and_the_reader_says_that_it_died(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -9
    history = RunReader(tmp_path).update()
    assert [point.step for point in history.steps] == [1, 2, 3, 4, 5]
    assert history.state == "ended without a word after step 5: it crashed or was killed"
