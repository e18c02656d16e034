"""The zero-skipping kernel's line of the evaluation: what it multiplies, and what is said without a GPU."""

from pathlib import Path

import pytest
import torch
from torch import nn

import acf
from acf.bench.evaluation import skipping
from acf.bench.evaluation.bench import CnnOptions, run_evaluation
from acf.bench.evaluation.skipping import SkippedStep, skipped_steps, traced_patterns
from acf.bench.evaluation.store import EvaluationStore
from acf.lowering import matrix_products


def traced() -> tuple[nn.Module, acf.Trace]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU())
    with acf.capture(model) as trace:
        model(torch.randn(2, 3, 9, 9)).square().sum().backward()
    return model, trace


def test_products_have_as_many_multiplications_as_the_lowering_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skipping, "EXAMPLE_ROWS", 1)
    trace = traced()[1]
    for patterns, op in zip(traced_patterns(trace), trace.ops, strict=True):
        gemms = list(matrix_products(trace, op))
        if op.phase != "input_grad":  # the lowering leaves out pixels of the padding there
            assert patterns.macs == sum(gemm.dense_macs for gemm in gemms)
            pairs = patterns.left.double() @ patterns.right.double().T
            assert int(pairs.sum()) == sum(gemm.nonzero_pairs for gemm in gemms)
        assert patterns.left.float().mean() <= patterns.right.float().mean()


def test_few_examples_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced()[1]
    monkeypatch.setattr(skipping, "EXAMPLE_ROWS", 1)
    once = [patterns.macs for patterns in traced_patterns(trace)]
    monkeypatch.setattr(skipping, "EXAMPLE_ROWS", 150)
    pixels = {"0": 50, "2": 18}
    factors = [150 // pixels[op.name] for op in trace.ops]
    assert [patterns.macs for patterns in traced_patterns(trace)] == [a * b for a, b in zip(once, factors, strict=True)]


def test_gains_are_over_cublas(store: EvaluationStore) -> None:
    store.put_fact("skipping", [vars(SkippedStep("dense", 3, 0.9, 2.0, 4.0, 1.0))])
    [step] = skipped_steps(store)
    assert (step.gain, step.gain_of_faster) == (0.5, 2.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_kernel_is_said_to_be_not_measurable(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    options = CnnOptions(
        systems="dense", seeds=1, steps=1, batch=16, captured=0, measurements=1, examples=64, device="cpu",
        out=tmp_path, skipping=True,
    )  # fmt: skip
    notes = run_evaluation(options, lambda what, share: None).notes
    assert "TensorDash-like kernel: not measurable here, there is no CUDA GPU" in notes
