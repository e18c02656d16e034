"""Training on a device reaches the losses of the host, and `acf bench offload` says so."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acf.bench.offloading import OffloadSpec, compare_training
from acf.cli import app
from acf.errors import DataError


def no_progress(text: str, share: float) -> None:
    """Say nothing."""


def test_a_small_transformer_reaches_the_losses_of_the_host() -> None:
    compared = compare_training(OffloadSpec("transformer", steps=3, batch=2), no_progress)
    assert compared.device_losses == pytest.approx(compared.host_losses, rel=1e-2)
    assert compared.device_losses[-1] < compared.device_losses[0]
    assert compared.last_step.compute_s > 0


def test_an_unknown_workload_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DataError, match="workload 'bert' is not one of cnn, transformer"):
        compare_training(OffloadSpec("bert"), no_progress)


def test_a_workload_without_a_timeline_says_so_before_it_runs() -> None:
    with pytest.raises(DataError, match="workload 'mlp' has no timeline; leave --timeline out"):
        OffloadSpec("mlp", timeline="run.json")


def test_the_command_prints_json_for_programs_and_writes_a_timeline(tmp_path: Path) -> None:
    options = ["--workload", "cnn", "--steps", "1", "--batch", "1", "--sparsity", "0"]
    timeline = tmp_path / "run.json"
    done = CliRunner().invoke(app, ["bench", "offload", *options, "--timeline", str(timeline), "--json"])
    assert done.exit_code == 0, done.output
    names = {event["name"] for event in json.loads(timeline.read_text())["traceEvents"] if event["ph"] == "X"}
    assert "host work" in names
    found = json.loads(done.stdout)["data"]
    assert found["final_device_loss"] == pytest.approx(found["final_host_loss"], rel=2e-2)
    assert found["last_step"]["host_s"] > 0
