"""Whole CPU steps: what is compared with what, and where the time is said to go. Nothing here asserts a speed."""

import json

import pytest
import torch
from torch import nn

from acf.bench.columns import cpu_step_part_table, cpu_step_table
from acf.bench.kernels import cpu_step
from acf.bench.kernels.cpu_step import CpuStep, CpuStepSpec, Times, measure_cpu_step
from acf.errors import SparsityError
from acf.nn import BlockSparsity, sparsify_


def example_step() -> CpuStep:
    times = {
        "dense eager": Times((1.0, 1.2, 9.0)),
        "dense compiled": Times((0.9, 1.0, 1.1)),
        "sparse eager": Times((0.2, 0.25, 0.3)),
        "sparse compiled": Times((0.1, 0.4, 0.5)),
    }
    dense = {"sparse products": 0.0, "dense products": 0.9, "attention": 0.0, "optimizer": 0.0, "rest": 0.1}
    sparse = {"sparse products": 0.05, "dense products": 0.1, "attention": 0.0, "optimizer": 0.0, "rest": 0.1}
    spec = CpuStepSpec("mixer-s16", block=32, sparsity=0.5)
    return CpuStep(spec, 2, "avx2", 8, times, {"dense": dense, "sparse": sparse})


def test_the_better_dense_way_is_compared_with_the_better_sparse_one() -> None:
    step = example_step()
    assert (step.better("dense"), step.better("sparse")) == ("dense compiled", "sparse eager")
    assert step.ratio == pytest.approx(1.0 / 0.25)
    assert step.best_ratio == pytest.approx(0.9 / 0.1)


def test_the_bound_counts_layers_that_stay_dense_and_all_the_rest_at_full_time() -> None:
    assert example_step().amdahl_bound == pytest.approx(1.0 / (1.0 - 0.5 * (0.9 - 0.1)))


def test_a_record_holds_the_whole_step() -> None:
    step = example_step()
    assert CpuStep.from_record(json.loads(json.dumps(step.record()))) == step


def test_the_tables_show_a_step() -> None:
    steps = [example_step()]
    assert cpu_step_table(steps).row_count == cpu_step_part_table(steps).row_count == 1


def test_an_unknown_network_is_refused() -> None:
    with pytest.raises(SparsityError, match="network 'vgg99' is not one of mixer-s16"):
        CpuStepSpec("vgg99", block=32, sparsity=0.9)


def test_a_step_is_timed_in_every_round_and_its_products_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cpu_step.CPU_STEP_BATCHES, "digits-cnn", 4)
    monkeypatch.setattr(torch, "compile", lambda model: model)
    step = measure_cpu_step(CpuStepSpec("digits-cnn", block=16, sparsity=0.5, rounds=2))
    assert [len(times.seconds) for times in step.times.values()] == [2, 2, 2, 2]
    assert step.parts["dense"]["sparse products"] == 0.0
    assert step.parts["dense"]["dense products"] > 0.0
    assert step.parts["sparse"]["sparse products"] > 0.0
    assert sum(step.parts["sparse"].values()) == pytest.approx(step.times[step.better("sparse")].median)


def test_the_first_layer_and_the_classifier_stay_dense() -> None:
    model = nn.Sequential(nn.Conv2d(3, 32, 1), nn.Conv2d(32, 32, 1), nn.Flatten(), nn.Linear(32, 32))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=16), cpu_step._is_inner_layer(model))
    assert [type(layer) is kind for layer, kind in ((model[0], nn.Conv2d), (model[3], nn.Linear))] == [True, True]
    assert type(model[1]) is not nn.Conv2d
