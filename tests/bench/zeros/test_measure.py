"""Zeros of every layer, counted in captured steps of several seeds."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import acf
from acf.bench.zeros.measure import MeasuredZeros, Spread, ZerosSpec, layer_zeros, measure_zeros
from acf.bench.zeros.record import add_to_record, zeros_record
from acf.errors import DataError
from acf.zoo.data import LabelledData

PAIRS = LabelledData("pairs", torch.arange(64).reshape(32, 2), torch.arange(32) % 2 * 1.0)


def measured(spec: ZerosSpec) -> list[MeasuredZeros]:
    return list(measure_zeros(spec, PAIRS, lambda *_: None))


def test_zeros_are_counted_by_layer_and_over_all_of_them() -> None:
    a, b = np.array([[1, 0], [0, 0]]), np.ones((2, 4))
    trace = acf.Trace.from_matmuls(
        [acf.Matmul("one", "forward", a, b), acf.Matmul("two", "forward", np.ones((2, 2)), b)]
    )
    layers, whole = layer_zeros(trace)
    assert layers["one"] == {"activations": 0.75, "weights": 0.0}
    assert layers["two"]["activations"] == 0.0
    assert whole == {"activations": 3 / 8, "weights": 0.0}


def test_every_variant_has_its_seeds_and_their_spread() -> None:
    (variant,) = measured(ZerosSpec("ncf", seeds=3, steps=2, batch=16))
    assert len(set(variant.losses)) == 3
    assert variant.layers["mlp.2"]["activations"].deviation > 0
    assert 0.2 < variant.layers["mlp.2"]["activations"].mean < 0.8  # behind a ReLU


def test_a_single_seed_has_no_deviation() -> None:
    assert Spread.of([0.5]) == Spread(0.5, 0.0)
    assert Spread.of([0.4, 0.6]).deviation == pytest.approx(0.1414, abs=1e-3)


def test_the_record_keeps_other_networks_and_says_how_it_was_made(tmp_path: Path) -> None:
    path = tmp_path / "zeros.json"
    path.write_text('{"other": {"variants": []}}')
    spec = ZerosSpec("ncf", seeds=1, steps=0, batch=4)
    add_to_record(path, zeros_record(spec, measured(spec)))
    stored = json.loads(path.read_text())["data"]
    assert list(stored) == ["ncf", "other"]
    assert {"command", "date", "commit", "machine", "spec"} <= set(stored["ncf"])
    assert stored["ncf"]["spec"]["steps"] == 0


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "zeros.json"
    for content in ("no", "[1]", '{"vgg8": 3}'):
        path.write_text(content)
        with pytest.raises(DataError, match="is no record of zeros"):
            add_to_record(path, {})
    with pytest.raises(DataError, match="0 sparsities, 1 gradient targets and 3 seeds give no run"):
        ZerosSpec("ncf", sparsities=())
