"""Captured training steps of known networks: real data, real steps, the same again from the same seed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import acf
from acf.cli import app
from acf.errors import DataError
from acf.zoo.capture import CapturedStep, CaptureSpec, captured_steps
from acf.zoo.data import LabelledData
from acf.zoo.pruning import PRUNINGS

RUNNER = CliRunner()
PAIRS = LabelledData("pairs", torch.arange(64).reshape(32, 2), torch.arange(32) % 2 * 1.0)


def test_the_command_captures_a_trace_without_a_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'adaptive-compute-fabric[demo]'")
    monkeypatch.delenv("ACF_DATA", raising=False)
    path = tmp_path / "squeezenet.safetensors"
    done = RUNNER.invoke(app, ["capture", "squeezenet", "--steps", "1", "--batch", "2", "--json", "-o", str(path)])
    (facts,) = json.loads(done.output)["data"]
    assert facts["label"] == "squeezenet: 2 examples of 64 x 64 after 1 steps of 2; scikit-learn digits"
    assert {op.phase for op in acf.Trace.load(path).ops} == {"forward", "input_grad", "weight_grad"}


def test_steps_on_the_way_are_captured_too() -> None:
    spec = CaptureSpec("ncf", steps=5, batch=4, every=2, captured=8)
    steps = list(captured_steps(spec, PAIRS))
    assert [step.step for step in steps] == [0, 2, 4, 5]
    assert {step.trace.tensors["head.activation"].shape[0] for step in steps} == {8}


def test_training_lowers_the_loss_of_what_it_is_trained_on() -> None:
    spec = CaptureSpec("ncf", steps=30, batch=32, every=30, learning_rate=1e-2)
    before, after = captured_steps(spec, PAIRS)
    assert after.loss < before.loss / 2


def density_of(step: CapturedStep, name: str) -> float:
    return float(step.trace.tensors[name].to_bool().mean())


def test_a_sparse_network_is_captured_with_its_blocks_which_move() -> None:
    first, last = captured_steps(CaptureSpec("ncf", steps=10, batch=4, every=10, sparsity=0.5, block=4), PAIRS)
    for name in ("mlp.0.weight.present", "mlp.2.weight.present"):
        assert density_of(first, name) == density_of(last, name) == 0.5
    assert "head.weight.present" not in first.trace.tensors, "blocks of 4 do not divide one output"
    moved = [step.trace.tensors["mlp.0.weight.present"].to_bool() for step in (first, last)]
    assert (moved[0] != moved[1]).any()


@pytest.mark.parametrize("pruning", PRUNINGS)
def test_single_weights_are_pruned_and_moved_instead_of_blocks(pruning: str) -> None:
    spec = CaptureSpec("ncf", steps=10, batch=4, every=10, sparsity=0.5, pruning=pruning)
    first, last = captured_steps(spec, PAIRS)
    kept = [step.trace.tensors["mlp.2.weight"].to_bool() for step in (first, last)]
    assert all(0.2 < each.mean() < 0.8 for each in kept)
    assert (kept[0] != kept[1]).any()


def test_gradients_of_convolutions_have_the_zeros_that_are_asked_for() -> None:
    images = torch.randint(0, 256, (8, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = LabelledData("noise", images, torch.arange(8))
    spec = CaptureSpec("squeezenet", steps=20, batch=2)  # the thresholds are learnt
    dense, sparse = (list(captured_steps(replace(spec, gradient_target=target), data))[-1] for target in (0.0, 0.9))
    shares = [
        np.mean([density_of(step, op.operands[0]) for op in step.trace.ops if op.phase == "input_grad"])
        for step in (dense, sparse)
    ]
    assert shares[0] > 0.3
    assert shares[1] < 0.1


def test_the_same_seed_gives_the_same_step() -> None:
    losses = [
        [step.loss for step in captured_steps(CaptureSpec("ncf", steps=3, seed=seed), PAIRS)] for seed in (0, 0, 1)
    ]
    assert losses[0] == losses[1] != losses[2]


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(DataError, match="batch 64 is more than the 32 examples of pairs"):
        next(captured_steps(CaptureSpec("ncf", batch=64), PAIRS))


def test_a_network_without_data_is_refused_with_those_that_have_some() -> None:
    with pytest.raises(DataError, match="model 'resnet5' is not known; did you mean 'resnet50'"):
        CaptureSpec("resnet5")
    with pytest.raises(DataError, match="'gpt' is not known; use one of alexnet, vgg16"):
        CaptureSpec("gpt")


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_learning_rate_that_is_not_above_0_and_finite_is_refused(rate: float) -> None:
    with pytest.raises(DataError, match="is not above 0 and finite"):
        CaptureSpec("squeezenet", learning_rate=rate)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("squeezenet", {"captured": 1}, "captured 1: normalisation needs a second example"),
        ("squeezenet", {"batch": 1}, "batch 1 is below 2; use 2 or more"),
        ("squeezenet", {"image_size": 1}, "image size 1 is below"),
        ("vit-s16", {"image_size": 65}, "image size 65 does not divide into patches of"),
    ],
)
def test_a_step_that_a_network_cannot_run_is_refused_by_value(model: str, settings: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        CaptureSpec(model, **settings)
