"""Steps with the measured zeros of every layer, read from a file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from acf.bench.fabric.workloads import StepSpec, step_layers, step_traces
from acf.bench.fabric.zeros import read_zeros
from acf.errors import ArchitectureError
from acf.zoo.synthetic import Zeros

RECORD = Path(__file__).parents[3] / "docs" / "results" / "zeros.json"


def spread(mean: float) -> dict[str, float]:
    return {"mean": mean, "deviation": 0.01}


def written(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_a_step_has_the_zeros_of_the_file(tmp_path: Path, tiny: StepSpec) -> None:
    names = [layer.name for layer in step_layers(tiny)]
    shares = {name: {"activations": 0.25, "gradients": 0.75} for name in names}
    spec = replace(tiny, zeros=written(tmp_path / "zeros.json", shares))
    assert {layer.zeros for layer in step_layers(spec)} == {Zeros(0.25, 0.75)}
    densities = {
        role: tensor.nonzeros / tensor.size
        for trace in step_traces(spec)
        for key, tensor in trace.tensors.items()
        for role in [key.rpartition(".")[2]]
    }
    assert densities["activation"] == pytest.approx(0.75, abs=0.05)
    assert densities["output_grad"] == pytest.approx(0.25, abs=0.05)


def test_of_a_record_the_network_and_sparsity_asked_for_are_taken(tmp_path: Path) -> None:
    variants = [
        {
            "sparsity": sparsity,
            "gradient_target": target,
            "layers": {"fc": {"activations": spread(sparsity / 2), "gradients": spread(target), "weights": spread(0)}},
        }
        for sparsity, target in ((0.5, 0.5), (0.5, 0.0), (0.9, 0.0))
    ]
    path = written(tmp_path / "record.json", {"net": {"command": "acf bench zeros net", "variants": variants}})
    assert read_zeros(path, "net", 0.9) == {"fc": Zeros(0.45, 0.0)}
    assert read_zeros(path, "net", 0.5) == {"fc": Zeros(0.25, 0.0)}
    with pytest.raises(ArchitectureError, match=r"has no net at sparsity 0.75 \(measured: 0.5, 0.5, 0.9\)"):
        read_zeros(path, "net", 0.75)
    with pytest.raises(ArchitectureError, match=r"has no other at sparsity 0.5 \(measured: none\)"):
        read_zeros(path, "other", 0.5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "holds no shares of zeros by layer"),
        ({"fc": {"activations": 0.5}}, "layer 'fc' of .* give it activations and gradients"),
        ({"fc": {"activations": 0.5, "gradients": 1.5}}, "has shares 0.5 and 1.5; they must lie within 0 to 1"),
    ],
)
def test_a_file_that_gives_no_shares_is_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        read_zeros(written(tmp_path / "zeros.json", content), "net", 0.0)


def test_a_layer_that_the_file_lacks_is_named(tmp_path: Path, tiny: StepSpec) -> None:
    path = written(tmp_path / "zeros.json", {"other": {"activations": 0.5, "gradients": 0.5}})
    with pytest.raises(ArchitectureError, match=r"has no layer '.*' of tiny; measure them all"):
        step_layers(replace(tiny, zeros=path))


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.75, 0.9])
def test_the_published_record_has_every_layer_of_resnet50(sparsity: float) -> None:
    layers = step_layers(StepSpec("resnet50", 1, sparsity, zeros=RECORD))
    assert any(layer.zeros.activations > 0.3 for layer in layers)
