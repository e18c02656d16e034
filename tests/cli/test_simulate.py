"""`acf compare`: several traces and machines in one table, as JSON and as CSV."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import acf
from acf.cli import app, main

runner = CliRunner()


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A full product and one whose weights are half zero."""
    folder = tmp_path_factory.mktemp("traces")
    random = np.random.default_rng(0)
    shares = {"full": 1.0, "half": 0.5}
    for label, share in shares.items():
        weight = random.random((32, 32)) < share
        matmul = acf.Matmul("fc", "forward", np.ones((32, 32), dtype=bool), weight)
        acf.Trace.from_matmuls([matmul], label=label).save(folder / f"{label}.safetensors")
    return {label: folder / f"{label}.safetensors" for label in shares}


def compared(*arguments: str | Path) -> list[dict[str, object]]:
    """The rows that ``acf compare`` prints as JSON."""
    answer = runner.invoke(app, ["compare", *map(str, arguments), "--json"])
    assert answer.exit_code == 0, answer.output
    rows: list[dict[str, object]] = json.loads(answer.output)["data"]
    return rows


def test_the_baseline_comes_first_for_every_trace_and_machines_are_named_with_commas(traces: dict[str, Path]):
    rows = compared(*traces.values(), "--on", "tensordash-512,tensorcore-512", "--baseline", "tensorcore-512")
    names = [(row["workload"], row["architecture"]) for row in rows]
    machines = ("tensorcore-512", "tensordash-512")
    assert names == [(label, machine) for label in traces for machine in machines]
    assert [row["speedup"] for row in rows[::2]] == [1.0, 1.0]


def test_a_sparse_step_can_be_set_against_the_dense_one_on_the_baseline(traces: dict[str, Path]):
    rows = compared(*traces.values(), "--on", "tensordash-512", "--baseline", "tensorcore-512@first")
    by_name = {(row["workload"], row["architecture"]): row for row in rows}
    dense, sparse = by_name["full", "tensorcore-512"], by_name["half", "tensordash-512"]
    assert sparse["speedup"] == pytest.approx(float(str(dense["step_seconds"])) / float(str(sparse["step_seconds"])))


def test_a_csv_file_has_the_figures_of_the_table(traces: dict[str, Path], tmp_path: Path):
    path = tmp_path / "table.csv"
    rows = compared(traces["half"], "--on", "tensordash-512", "--baseline", "tensorcore-512", "--csv", path)
    written = list(csv.DictReader(path.read_text().splitlines()))
    assert [float(row["energy_j"]) for row in written] == [row["energy_j"] for row in rows]
    assert [row["architecture"] for row in written] == ["tensorcore-512", "tensordash-512"]


def test_a_baseline_on_another_trace_than_the_first_is_refused(
    traces: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.argv", ["acf", "compare", str(traces["half"]), "--baseline", "sat@last"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err == "acf: baseline 'sat@last' names no trace; write sat or sat@first\n"


def test_a_timeline_and_a_heat_map_are_written_beside_the_result(
    traces: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    timeline, heat_map = tmp_path / "step.json", tmp_path / "step.svg"
    monkeypatch.setattr("sys.argv", ["acf", "simulate", str(traces["half"]), "--timeline", str(timeline), "--json"])
    with pytest.raises(SystemExit, match="0"):
        main()
    output, errors = capsys.readouterr()
    assert json.loads(output)["data"][0]["workload"] == "half"
    assert f"timeline: {timeline} (" in errors
    assert json.loads(timeline.read_text())["otherData"]["workload"] == "half"
    assert heat_map.read_text().startswith("<svg")
