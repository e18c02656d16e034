"""Training steps for the fabric: the networks are the real ones, blocks and zeros are drawn as asked."""

from dataclasses import replace

import pytest

from acf.bench.fabric.workloads import WORKLOADS, StepSpec, layer_traces, step_layers, step_traces
from acf.errors import ArchitectureError
from acf.lowering import matrix_products
from acf.trace import kept_by


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
        ({"gradient_zeros": 1.0}, "gradient_zeros 1.0 must be at least 0 and below 1"),
        ({"sequence": 0}, "sequence 0 must be at least 1"),
        ({"projection": True}, "resnet50 has no vocabulary to project onto"),
    ],
)
def test_a_step_that_is_none_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        StepSpec(**({"network": "resnet50", "examples": 1, "sparsity": 0.5} | changes))  # type: ignore[arg-type]


def test_attention_comes_after_the_values_and_its_gradients_before_theirs() -> None:
    step = StepSpec("transformer-base", 64, 0.9)
    trace = next(iter(layer_traces(step, ("encoder.0.self_attention.value",))))
    assert [op.name.rpartition(".")[2] for op in trace.ops] == (
        ["value", "scores", "context", "context", "context", "scores", "scores", "value", "value"]
    )
    macs = [64 * 32 * 512] * 6  # tokens x tokens of a sentence x width
    attention = [op for op in trace.ops if op.batched]
    assert [sum(gemm.dense_macs for gemm in matrix_products(trace, op)) for op in attention] == macs
    assert [(op.kind, op.after) for op in trace.vector_ops] == [("softmax", 2), ("softmax", 5), ("adam", 8)]


def test_gradients_have_zeros_only_right_before_a_relu_unless_asked_for() -> None:
    def zeros(network: str, **options: float) -> set[float]:
        return {layer.zeros.gradients for layer in step_layers(StepSpec(network, 1, 0.5, **options))}  # type: ignore[arg-type]

    assert zeros("resnet50") == {0.0}
    assert zeros("transformer-base") == {0.0, 0.5}
    assert zeros("resnet50", gradient_zeros=0.25) == {0.0, 0.25}  # the classifier's have none


def test_the_projection_onto_the_vocabulary_is_a_dense_layer_more() -> None:
    layers = step_layers(StepSpec("transformer-base", 64, 0.9, projection=True))
    assert (layers[-1].name, layers[-1].product.weights, layers[-1].sparse) == ("projection", 512 * 37_000, False)


def test_every_bottleneck_adds_the_gradient_that_the_next_one_has_kept() -> None:
    traces = list(step_traces(StepSpec("resnet50", 1, 0.9)))
    kept, read = [], []
    for op in (op for trace in traces for op in trace.vector_ops if op.phase == "backward"):
        if op.kind == "keep":
            kept.append(kept_by(op.name))
        elif op.kind == "add":
            read.append((op.name, op.other))
            assert not op.other or op.other in kept
    assert len(read) == 16
    assert [name for name, other in read if not other] == ["layer4.2.conv3"]  # nothing is added behind the last one
    assert dict(read)["layer1.2.conv3"] == kept_by("layer2.0.downsample")
    assert dict(read)["layer1.1.conv3"] == kept_by("layer1.2.conv3")
    assert sorted(kept) == sorted(other for _, other in read if other)
