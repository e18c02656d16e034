"""Whole steps for the fabric: the networks are the real ones, and every machine plays the same step."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import acf
from acf.bench.fabric import workloads
from acf.bench.fabric.comparison import compare_steps, play_step
from acf.bench.fabric.workloads import NETWORKS, StepLayer, StepSpec, layer_traces, step_traces
from acf.cli import app
from acf.errors import ArchitectureError
from acf.lowering import effectual_macs
from acf.sim.exact import exact_engine
from acf.zoo.synthetic import ConvLayer, Zeros


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> StepSpec:
    """A convolution and a linear layer under the name of a network."""
    layers = [
        StepLayer("stem", 3, 64, Zeros(0.0, 0.5), ConvLayer(3, 64, 8), first=True, sparse=False),
        StepLayer("conv", 64, 64, Zeros(0.5, 0.5), ConvLayer(64, 64, 8, stride=2)),
    ]
    monkeypatch.setitem(workloads.NETWORKS, "tiny", lambda: layers)
    return StepSpec("tiny", 4, 0.75)


def test_networks_have_the_weights_of_their_papers() -> None:
    weights = {name: sum(int(np.prod(layer.weight_shape)) for layer in make()) for name, make in NETWORKS.items()}
    assert weights["resnet50"] == 25_557_032 - 53_120 - 1_000  # without normalisation and the classifier's bias
    assert weights["transformer-base"] == 6 * (4 * 512**2 + 2 * 512 * 2048) + 6 * (8 * 512**2 + 2 * 512 * 2048)


def test_a_sparse_layer_keeps_its_share_of_blocks_and_asks_only_for_their_gradients(tiny: StepSpec) -> None:
    trace = list(layer_traces(tiny))[1]
    weight = trace.tensors["conv.weight"].to_bool()
    assert weight.mean() == pytest.approx(0.25, abs=0.01)
    blocks = weight.reshape(4, 16, 36, 16).any(axis=(1, 3))
    assert weight.sum() == blocks.sum() * 256
    assert next(op for op in trace.ops if op.phase == "weight_grad").needed == "conv.weight"


def test_balanced_blocks_are_as_many_in_every_row(tiny: StepSpec) -> None:
    trace = list(layer_traces(replace(tiny, distribution="balanced")))[1]
    rows = trace.tensors["conv.weight"].to_bool().reshape(4, 16, 36, 16).any(axis=(1, 3)).sum(axis=1)
    assert rows.max() - rows.min() <= 1


def test_the_step_goes_forward_through_the_layers_and_back(tiny: StepSpec) -> None:
    order = [(op.name, op.phase) for trace in step_traces(tiny) for op in trace.ops]
    assert order == [
        ("stem", "forward"),
        ("conv", "forward"),
        ("conv", "weight_grad"),
        ("conv", "input_grad"),
        ("stem", "weight_grad"),
    ]


def test_every_machine_does_the_same_effectual_work(tiny: StepSpec) -> None:
    played = compare_steps([tiny], "acf-512", gpus=True, on_progress=lambda what, share: None)
    peaks = {each.machine: each.utilization * each.cycles for each in played[:1]}
    assert [each.machine for each in played] == ["acf-512", "tensorcore", "tensordash", "gpu-v100", "gpu-h200"]
    effectual = sum(effectual_macs(trace) for trace in layer_traces(tiny))
    assert peaks["acf-512"] * 512 == pytest.approx(effectual)
    for each in played:
        assert each.utilization + sum(each.lost.values()) == pytest.approx(1.0)


def test_stepping_every_cycle_gives_the_same_figures(tiny: StepSpec) -> None:
    fast, exact = play_step(tiny, "acf-512", "acf-512"), play_step(tiny, "acf-512", exact_engine("acf-512"))
    assert (fast.cycles, fast.energy_j, fast.lost) == (exact.cycles, exact.energy_j, exact.lost)


def test_parts_of_a_step_share_one_memory(tiny: StepSpec) -> None:
    parts = acf.sim.simulate_parts(step_traces(tiny), "acf-512")
    alone = [acf.simulate(trace, "acf-512") for trace in step_traces(tiny)]
    assert parts.dram_bytes < sum(result.dram_bytes for result in alone)  # weights stay from the first pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "resnet"}, "network 'resnet' is not one of resnet50, transformer-base"),
        ({"examples": 0}, "examples 0 must be at least 1"),
        ({"sparsity": 1.0}, "sparsity 1.0 must be at least 0 and below 1"),
    ],
)
def test_a_step_that_is_none_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        StepSpec(**({"network": "resnet50", "examples": 1, "sparsity": 0.5} | changes))  # type: ignore[arg-type]


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
    text = CliRunner().invoke(app, ["bench", "fabric", *options]).output
    assert "tensordash" in text
    assert "weight_grad" in text
    assert [each["machine"] for each in json.loads(saved.read_text())] == ["acf-512", "tensorcore", "tensordash"]
