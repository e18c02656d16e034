"""Training on a device reaches the losses of the host, and `acf bench offload` says so."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from acf.bench import offloading
from acf.bench.offloading import (
    BitComparison,
    MlpSpec,
    OffloadSpec,
    compare_bits,
    compare_training,
    measure_step,
    run_offload_bench,
)
from acf.cli import app
from acf.errors import DataError
from acf.runtime import RtlSpec
from acf.zoo.networks import NETWORKS
from tests.rtl.device.programs import ONE_SCU


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


def test_a_step_is_timed_from_its_trace_and_offloaded_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(NETWORKS["small-cnn"], build=lambda classes: NETWORKS["small-cnn"].build(width=16))
    monkeypatch.setattr(offloading, "NETWORKS", {"resnet18-cifar": small})
    found = measure_step(OffloadSpec("resnet18", steps=2, batch=1), no_progress)
    assert len(found.offload_s) == len(found.offload_cpu_s) == 2
    assert found.ratio == found.offload_s[-1] / found.simulate_s > 0
    assert found.cpu_ratio == found.offload_cpu_s[-1] / found.simulate_cpu_s > 0
    monkeypatch.setattr(offloading, "measure_step", lambda spec, on_progress: found)
    figures, text = run_offload_bench(OffloadSpec("resnet18"), no_progress)
    assert figures["ratio"] == found.ratio
    assert f"last {found.ratio:.2f}x, {found.cpu_ratio:.2f}x in processor time" in text


@pytest.mark.parametrize(("equal", "verdict"), [(True, "the same bits"), (False, "DIFFERENT bits")])
def test_the_verdict_on_the_bits_of_gates_and_simulator_is_told(
    equal: bool, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = (0.5, 0.25)
    bits = BitComparison(losses, losses, equal, moved_blocks=3, rtl_compute_s=2e-6, sim_compute_s=1e-6)
    monkeypatch.setattr(offloading, "compare_bits", lambda steps, seed, on_progress: bits)
    figures, text = run_offload_bench(OffloadSpec("mlp", steps=2), no_progress)
    assert figures["is_equal"] is equal
    assert f"2 steps in gates and on the simulator: {verdict}" in text
    assert "losses 0.5000, 0.2500" in text


def test_an_mlp_trained_in_gates_has_the_bits_of_the_simulated_one() -> None:
    fabric: Any = replace(ONE_SCU.shape, dram_latency_s=8e-9)  # type: ignore[call-arg]  # short, as pysim is slow
    limits = {"memory_bytes": 1 << 15, "index_words": 64, "blocks": 4, "column_tiles": 2, "depths": 2}
    found = compare_bits(1, rtl=RtlSpec(fabric, **limits, simulator="pysim"), mlp=MlpSpec((8, 16, 8), batch=1))
    assert found.is_equal
    assert found.rtl_losses == found.sim_losses
    assert found.rtl_compute_s > 0
