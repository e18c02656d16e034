"""`acf sweep` and the report of its record."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import acf
from acf.cli import app, main

runner = CliRunner()


@pytest.fixture(autouse=True)
def _step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    matmul = acf.Matmul("fc", "forward", np.ones((32, 32)), np.eye(32))
    acf.Trace.from_matmuls([matmul], label="step").save("step.safetensors")


COMMAND = ["sweep", "step.safetensors", "--set", "mesh_columns=2,4", "--set", "tile=16,12", "--jobs", "1"]


def test_a_sweep_prints_json_writes_csv_and_makes_a_report(tmp_path: Path) -> None:
    answer = runner.invoke(app, [*COMMAND, "--json", "--csv", "points.csv", "--name", "sizes"])
    assert answer.exit_code == 0, answer.output
    values = json.loads(answer.stdout)["data"]
    assert [point["tile"] for point in values["points"]] == [16, 16, 12, 12]
    assert {row["parameter"] for row in values["importance"]} == {"mesh_columns", "tile"}
    rows = list(csv.DictReader((tmp_path / "points.csv").read_text().splitlines()))
    assert [float(row["energy_j"]) for row in rows[:2]] == [point["energy_j"] for point in values["points"][:2]]
    assert "tile 12 is not one of" in rows[2]["failure"]
    answer = runner.invoke(app, ["report", "runs/sizes/sweep.sqlite", "-o", "report.html"])
    assert answer.exit_code == 0, answer.output
    page = (tmp_path / "report.html").read_text()
    assert "energy j against step seconds" in page
    assert "4 points, " in page


def test_the_terminal_shows_the_front_and_why_points_failed() -> None:
    answer = runner.invoke(app, COMMAND)
    assert answer.exit_code == 0, answer.output
    assert "Pareto front" in answer.output
    assert "2 failed: acf-512: tile 12 is not one of 8, 16, 32" in " ".join(answer.output.split())
    assert "runs/step-acf-512/sweep.sqlite" in answer.output


def test_a_file_and_settings_at_once_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["acf", "sweep", "sweep.toml", "--set", "tile=8"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "a .toml file describes the whole sweep; leave out other traces, --set and --base" in capsys.readouterr().err
