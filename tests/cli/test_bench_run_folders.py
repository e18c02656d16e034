"""A command that writes where another process writes ends at the door, with one line that names that process."""

import os
from pathlib import Path

import numpy as np
import pytest

import acf
from acf.cli import main
from acf.run_folder import only_process_in, only_process_writing

FOLDERS = {
    "bench resnet50 --size small --steps 1 --out {out} --name run": "run",
    "bench transformer --size small --steps 1 --out {out} --name run": "run",
    "bench cnn --steps 1 --out {out} --name run": "run",
    "bench pong --out {out}/run": "run",
    "bench kernels --device cpu --out {out}/run": "run",
    "bench tracking --out {out}/run": "run",
    "bench ablation --what block --out {out}/run": "run",
    "epochs vgg8 --out {out}/run": "run",
    "demo --out {out}/run": "run",
}
RECORDS = {
    "bench accuracy --out {out}/record.json": "record.json",
    "bench training --task small --out {out}/record.json": "record.json",
    "bench zeros ncf --out {out}/record.json": "record.json",
    "sweep step.safetensors --base tensordash --set depth=2,3 --name run": "runs/run/sweep.sqlite",
}


def line_of(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that ends with exit code 2 says."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["acf", *command.format(out=folder).split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1, line
    return line


@pytest.mark.parametrize("command", FOLDERS)
def test_a_run_folder_in_use_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with only_process_in(tmp_path / FOLDERS[command]):
        line = line_of(command, tmp_path, monkeypatch, capsys)
    assert f"run is in use by process {os.getpid()}, and one process at a time may write there; wait" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", RECORDS)
def test_a_record_in_use_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "step.safetensors"
    acf.Trace.from_matmuls([acf.Matmul("fc", "forward", np.eye(16), np.ones((16, 32)))]).save(trace)
    with only_process_writing(tmp_path / RECORDS[command]):
        line = line_of(command, tmp_path, monkeypatch, capsys)
    assert f"is in use by process {os.getpid()}, and one process at a time may write there; wait" in line
    assert list(tmp_path.iterdir()) == [trace]


def test_a_command_that_fails_at_the_door_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "bench resnet50 --size small --steps 1 --data {out}/nothing --data-set cifar10 --out {out}/new/runs"
    assert "cifar10" in line_of(command, tmp_path, monkeypatch, capsys)
    assert list(tmp_path.iterdir()) == []
