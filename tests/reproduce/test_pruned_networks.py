"""From captured steps of pruned networks to row T12."""

import json
from pathlib import Path

import pytest

from acf.bench.traces import figures_of
from acf.errors import TraceError
from acf.reproduce.pruned_networks import pruned_record, write_record
from acf.reproduce.tensordash_epochs import mean_checks
from acf.zoo.capture import CaptureSpec, captured_steps
from acf.zoo.data import load_training_data


def test_a_captured_step_of_a_pruned_network_becomes_a_figure_of_the_row(tmp_path: Path) -> None:
    spec = CaptureSpec("squeezenet", steps=0, batch=2, sparsity=0.9, pruning="sparse-momentum")
    (step,) = captured_steps(spec, load_training_data("image", None, None))
    figures, record = tmp_path / "figures.json", tmp_path / "record.json"
    figures.write_text(json.dumps([vars(figures_of(step.trace))]))
    write_record(str(figures), str(record))
    speedups = json.loads(record.read_text())["speedups"]
    assert list(speedups) == ["squeezenet, sparse-momentum"]
    assert speedups["squeezenet, sparse-momentum"] > 1.0


def test_pruned_steps_take_the_place_of_the_dense_network_in_a_second_mean() -> None:
    pruned = {"resnet50, sparse-momentum": 2.0, "resnet50, dynamic-reparameterization": 3.0}
    mean, with_pruned, first, second = mean_checks({"vgg16": 2.2, "resnet50": 1.3}, pruned)
    assert mean.ours == pytest.approx(1.75)
    assert with_pruned.ours == pytest.approx((2.2 + 2.0 + 3.0) / 3)
    assert (first.ours, second.ours) == (2.0, 3.0)
    assert len(mean_checks({"vgg16": 2.2}, {})) == 1


def test_a_step_that_was_not_pruned_is_refused() -> None:
    dense = {"label": "resnet50: 4 examples of 112 x 112 after 150 steps of 4; CIFAR-10", "tensordash": {"compute": 1}}
    with pytest.raises(TraceError, match="--pruning"):
        pruned_record([dense])
    with pytest.raises(TraceError, match="acf traces"):
        pruned_record([])
