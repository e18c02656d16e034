"""Training steps for the fabric: the networks are the real ones, blocks and zeros are drawn as asked."""

from dataclasses import replace

import pytest

from acf.bench.fabric.workloads import WORKLOADS, StepSpec, layer_traces, step_traces
from acf.errors import ArchitectureError


def test_networks_have_the_weights_of_their_papers() -> None:
    weights = {name: sum(layer.product.weights for layer in make()) for name, make in WORKLOADS.items()}
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
