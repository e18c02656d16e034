"""Whole steps on the fabric and its rivals: every machine plays the same step."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import acf.sim
from acf.bench.fabric.comparison import compare_steps, play_step
from acf.bench.fabric.workloads import StepSpec, layer_traces, step_traces
from acf.cli import app
from acf.errors import ArchitectureError
from acf.lowering import effectual_macs
from acf.sim.exact import exact_engine


def test_every_machine_does_the_same_effectual_work(tiny: StepSpec) -> None:
    played = compare_steps([tiny], "acf-512", gpus=True, on_progress=lambda what, share: None)
    peaks = {each.machine: each.utilization * each.cycles for each in played[:1]}
    assert [each.machine for each in played] == ["acf-512", "tensorcore", "tensordash", "gpu-v100", "gpu-h200"]
    effectual = sum(effectual_macs(trace) for trace in layer_traces(tiny))
    assert peaks["acf-512"] * 512 == pytest.approx(effectual)
    for each in played:
        assert each.step_utilization + sum(each.lost.values()) == pytest.approx(1.0)
        assert each.seconds < each.step_seconds
        assert each.step_seconds_bounds[0] <= each.step_seconds <= each.step_seconds_bounds[1]


def test_stepping_every_cycle_gives_the_same_figures_where_memory_is_a_rate(tiny: StepSpec) -> None:
    fast, exact = (
        play_step(tiny, "acf-512", acf.sim.spec("acf-512", memory_model="rate", engine=engine))
        for engine in ("fast", "exact")
    )
    assert (fast.cycles, fast.energy_j, fast.lost) == (exact.cycles, exact.energy_j, exact.lost)


def test_stepping_every_dram_channel_too_gives_nearly_the_same_figures(tiny: StepSpec) -> None:
    fast, exact = play_step(tiny, "acf-512", "acf-512"), play_step(tiny, "acf-512", exact_engine("acf-512"))
    assert fast.cycles == pytest.approx(exact.cycles, rel=0.01)
    assert fast.lost == pytest.approx(exact.lost, abs=0.005)


def test_parts_of_a_step_share_one_memory(tiny: StepSpec) -> None:
    parts = acf.sim.simulate_parts(step_traces(tiny), "acf-512")
    alone = [acf.simulate(trace, "acf-512") for trace in step_traces(tiny)]
    assert parts.dram_bytes < sum(result.dram_bytes for result in alone)  # weights stay from the first pass


def test_only_fabrics_can_be_stepped() -> None:
    with pytest.raises(ArchitectureError, match="tensorcore is no fabric"):
        exact_engine("tensorcore")
    assert exact_engine("acf-512") == replace(acf.sim.spec("acf-512"), engine="exact")  # type: ignore[call-arg]


def test_the_command_prints_the_fabric_beside_its_rivals(tiny: StepSpec, tmp_path: Path) -> None:
    saved = tmp_path / "steps.json"
    options = [
        "--network",
        "tiny",
        "--examples",
        "2",
        "--sparsities",
        "0.5",
        "--no-gpus",
        "--layers",
        "--save",
        str(saved),
    ]
    text = CliRunner().invoke(app, ["bench", "fabric", *options], env={"COLUMNS": "200"}).output
    assert "tensordash" in text
    assert "weight_grad" in text
    assert "Algorithm 1" in text
    played = json.loads(saved.read_text())["data"]
    assert [each["machine"] for each in played] == [
        "acf-512",
        "tensorcore",
        "tensordash",
    ]
