"""Every example runs from an empty folder and prints what it promises."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def output_of(name: str, folder: Path, *options: str) -> str:
    """What an example prints; skipped with its reason where it skips itself."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = (sys.executable, EXAMPLES / name, *options)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    if done.stdout.startswith("skipped:"):
        pytest.skip(done.stdout.removeprefix("skipped:").strip())
    return done.stdout


def test_training_ends_in_a_report(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    output = output_of("01_train_sparse.py", tmp_path)
    assert "blocks moved" in output
    assert "acf-512" in output
    assert (tmp_path / "runs/01/report.html").exists()
    assert (tmp_path / "runs/01/step.safetensors").exists()


def test_a_policy_of_ones_own_moves_blocks(tmp_path: Path) -> None:
    lines = output_of("02_own_policy.py", tmp_path).splitlines()
    moved = {line[:12].strip(): int(line.split(",")[1].split()[0]) for line in lines}
    assert moved["static"] == 0
    assert moved["Algorithm 1"] > 0
    assert moved["early moves"] > 0


def test_an_accelerator_of_ones_own_stands_between_dense_and_the_fabric(tmp_path: Path) -> None:
    lines = output_of("03_own_accelerator.py", tmp_path).splitlines()
    speedups = [float(line.split("cycles, ")[1].split("x")[0]) for line in lines]
    assert speedups == sorted(speedups)
    assert speedups[0] == 1.0


def test_hugging_face_trains_a_sparse_model(tmp_path: Path) -> None:
    assert "of the sparse layers' weights are absent" in output_of("04_hugging_face.py", tmp_path)


def test_a_sweep_prints_a_row_per_variant_and_marks_the_front(tmp_path: Path) -> None:
    lines = output_of("05_sweep.py", tmp_path).splitlines()
    assert len(lines) == 10
    assert "on the front" in lines[1]
    assert (tmp_path / "runs/05/sweep.sqlite").exists()


def test_co_design_trains_and_simulates_every_point(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    output = output_of("codesign.py", tmp_path)
    assert "of 8 points on the front" in output
    assert "mesh_columns: " in output
    assert "0% of accuracy" in output.splitlines()[-1]  # a machine trains nothing


def test_a_small_fabric_becomes_verilog_and_agrees_with_the_simulator(tmp_path: Path) -> None:
    output = output_of("06_rtl.py", tmp_path, "--tiles", "2")
    assert "KiB of Verilog" in output
    assert "agree on every event" in output
    assert (tmp_path / "runs/06/small.v").exists()


def test_every_numbered_example_is_tested() -> None:
    tested = Path(__file__).read_text()
    assert [path.name for path in sorted(EXAMPLES.glob("0*.py")) if path.name not in tested] == []


def test_a_trained_network_is_pruned_in_three_ways_and_fine_tuned(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    options = ("--examples", "300", "--epochs", "1", "--sparsities", "0.75", "--record", "record.json")
    output = output_of("07_prune_trained.py", tmp_path, *options)
    assert output.count("75% sparse") == 3
    record = json.loads((tmp_path / "record.json").read_text())
    assert [row["blocks"] for row in record["rows"]] == ["magnitude", "weight x input", "random"]
    assert {"command", "commit", "date"} <= set(record)


def test_steps_of_a_gpu_are_measured_or_skipped_with_the_reason(tmp_path: Path) -> None:
    steps = json.loads(output_of("gpu_steps.py", tmp_path))
    assert {(step["network"], step["compiled"]) for step in steps} >= {("resnet50", True), ("transformer-base", True)}
