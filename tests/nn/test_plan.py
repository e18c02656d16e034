"""Planning a sparse model by times measured on this machine."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import acf
from acf.errors import ArgumentError, SparsityError
from acf.nn import block_sparse_layers
from acf.nn.plan import PlannedLayer, PlanOptions, SparsityPlan, plan

SPEC = acf.BlockSparsity(0.75, block=16, distribution="cost")


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def planned(densities: dict[str, float]) -> SparsityPlan:
    layers = tuple(PlannedLayer(name, density, 1e-3, 1e-4) for name, density in densities.items())
    return SparsityPlan(SPEC, layers, step_seconds=4e-3, planned_seconds=2e-3)


def test_a_plan_names_every_layer_and_leaves_the_model_as_it_is() -> None:
    model = mlp()
    before = copy.deepcopy(model.state_dict())
    found = plan(model, torch.randn(32, 64), SPEC)
    assert {layer.name for layer in found.layers} == {"0", "2", "4"}
    assert [layer.density for layer in found.layers if layer.name == "4"] == [1.0]
    assert not block_sparse_layers(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_speedup_counts_what_stays_as_it_is() -> None:
    found = plan(mlp(), torch.randn(32, 64), SPEC)
    saved = sum(layer.dense_seconds - layer.planned_seconds for layer in found.layers)
    assert found.planned_seconds == pytest.approx(found.step_seconds - saved)
    assert found.speedup == pytest.approx(found.step_seconds / found.planned_seconds)


def test_a_plan_is_checked_against_the_step_of_the_planned_model(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter([8e-3, 2e-3, 1e-3])  # dense; as planned; as planned again
    monkeypatch.setattr("acf.nn.plan.step_seconds", lambda *args: next(steps))
    monkeypatch.setattr("acf.nn.plan._time_line", lambda *args: (2e-3, 1e-4, 1e-3))
    found = plan(mlp(), torch.randn(32, 64), SPEC, speedup=2.0, options=PlanOptions(rounds=1))
    assert found.measured_seconds == 1e-3
    assert found.measured_speedup == 8.0
    assert "checked: 8.00x, 1.00 ms" in str(found)


def test_time_that_the_check_finds_buys_density_where_a_speedup_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acf.nn.plan._time_line", lambda *args: (2e-3, 1e-4, 4e-3))
    densities = []
    for checks in (0, 2):
        steps = iter([8e-3, 3e-3, 3.9e-3])  # dense; faster than predicted; then as asked for
        monkeypatch.setattr("acf.nn.plan.step_seconds", lambda *args, steps=steps: next(steps))
        found = plan(mlp(), torch.randn(32, 64), SPEC, speedup=1.45, options=PlanOptions(rounds=1, checks=checks))
        densities.append(sum(found.densities.values()))
        assert (found.measured_seconds is None) == (checks == 0)
    assert densities[1] > densities[0]


def test_a_speedup_that_only_a_much_sparser_model_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acf.nn.plan._time_line", lambda *args: (2e-3, 1e-3, 2e-3))
    monkeypatch.setattr("acf.nn.plan.step_seconds", lambda *args: 8e-3)
    expected = (
        r"speedup 1.33 would leave .* of the weights, and sparsity 0.75 keeps 25.00%, which gains about 1.14x here"
    )
    with pytest.raises(SparsityError, match=expected):
        plan(mlp(), torch.randn(32, 64), SPEC, speedup=1.33, options=PlanOptions(rounds=1, checks=0))
    found = plan(mlp(), torch.randn(32, 64), SPEC, speedup=1.14, options=PlanOptions(rounds=1, checks=0))
    assert found.speedup >= 1.14


def test_a_number_of_checks_that_is_no_count_is_refused() -> None:
    with pytest.raises(SparsityError, match="checks -1 is no count"):
        PlanOptions(checks=-1)


def test_sparsify_takes_a_plan_and_keeps_its_densities() -> None:
    model = mlp()
    summary = acf.sparsify_(model, planned({"0": 0.25, "2": 1.0}))
    layers = block_sparse_layers(model)
    assert list(layers) == ["0"]
    assert layers["0"].density == 0.25
    assert dict(summary.left_dense)["2"] == "filter_fn leaves it out"


def test_a_plan_for_another_model_is_refused_by_name() -> None:
    with pytest.raises(SparsityError, match="'9', which the model does not have"):
        acf.sparsify_(mlp(), planned({"9": 0.25}))


def test_a_plan_that_leaves_all_dense_is_refused() -> None:
    with pytest.raises(SparsityError, match="train it dense"):
        acf.sparsify_(mlp(), planned({"0": 1.0}))


def test_without_a_layer_that_holds_a_block_planning_is_refused() -> None:
    with pytest.raises(SparsityError, match="use a smaller block"):
        plan(nn.Sequential(nn.Linear(8, 8)), torch.randn(4, 8), SPEC)


def test_a_plan_prints_as_a_table_of_layers() -> None:
    text = str(planned({"0": 0.25, "2": 1.0}))
    assert text.splitlines()[0] == "2.00x for the whole step: 4.00 to 2.00 ms, forward and backward"
    assert "25.0%" in text.splitlines()[1]
    assert "dense" in text.splitlines()[2]


def test_a_plan_may_choose_a_block_for_each_layer() -> None:
    found = plan(mlp(), torch.randn(32, 64), SPEC, options=PlanOptions(rounds=1, blocks=(8, 16)))
    assert {layer.block for layer in found.layers if layer.density < 1.0} <= {8, 16}
    assert [layer.reason for layer in found.layers if layer.name == "4"] == ["none of the blocks (8, 16) divides it"]


def test_sparsify_gives_every_layer_the_block_that_the_plan_names() -> None:
    model = mlp()
    layers = (PlannedLayer("0", 0.25, 1e-3, 1e-4, block=8), PlannedLayer("2", 0.5, 1e-3, 1e-4, block=32))
    acf.sparsify_(model, SparsityPlan(SPEC, layers, step_seconds=4e-3, planned_seconds=2e-3))
    sparse = block_sparse_layers(model)
    assert {name: layer.weight.shape for name, layer in sparse.items()} == {"0": (32, 8, 8), "2": (4, 32, 32)}


def test_blocks_to_choose_from_need_the_distribution_by_cost() -> None:
    spec = acf.BlockSparsity(0.75, block=16, distribution="erk")
    with pytest.raises(SparsityError, match="set distribution='cost'"):
        plan(mlp(), torch.randn(32, 64), spec, options=PlanOptions(blocks=(8, 16)))


def test_a_block_that_is_no_positive_integer_is_refused() -> None:
    with pytest.raises(SparsityError, match="pass such as"):
        PlanOptions(blocks=(0, 16))


@pytest.mark.parametrize("speedup", [float("nan"), float("inf"), 0, -2.0, 0.5, 10**400, True, "2"])
def test_a_speedup_that_no_step_can_have_is_refused_before_anything_is_timed(speedup: Any) -> None:
    with pytest.raises(SparsityError, match=r"is no number from 1 to 1e\+06; pass the ratio"):
        plan(mlp(), torch.randn(32, 64), SPEC, speedup=speedup)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"blocks": None}, "blocks None are not positive integers"),
        ({"blocks": 16}, "blocks 16 are not positive integers"),
        ({"family": "vit"}, "family 'vit' is not one of cnn"),
        ({"family": []}, "family .. is not one of cnn"),
    ],
)
def test_options_that_mean_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SparsityError, match=message):
        PlanOptions(**settings)


def test_options_of_another_kind_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"options is \{\}, of type dict; pass PlanOptions"):
        plan(mlp(), torch.randn(32, 64), SPEC, options={})  # type: ignore[arg-type]


@pytest.mark.parametrize("density", [float("nan"), -0.5, 0.0, 1.5, "0.5", None, True])
def test_a_layer_is_planned_with_a_share_of_its_blocks(density: Any) -> None:
    with pytest.raises(SparsityError, match=r"of layer '0' is outside \(0, 1\]; pass the share of blocks that stay"):
        PlannedLayer("0", density, 1e-3, 1e-4)


@pytest.mark.parametrize("block", [0, -8, 1.5, "8", True])
def test_a_layer_is_planned_with_blocks_of_a_whole_side(block: Any) -> None:
    with pytest.raises(SparsityError, match=r"of layer '0' is no positive integer; pass the side of a block, or None"):
        PlannedLayer("0", 0.5, 1e-3, 1e-4, block=block)
