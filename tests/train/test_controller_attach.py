"""Tying a policy to a model and its optimizer, and letting go again."""

import copy
import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from acf.errors import TopologyError
from acf.masks import BlockDST
from acf.nn import BlockSparseLayer, BlockSparsity, block_sparse_layers, sparsify_
from acf.ops import observe
from acf.train import attach

EVERY_STEP = BlockDST(total_steps=100, every=1, fraction=0.5, schedule="constant")
HALF = BlockSparsity(sparsity=0.5, block=4)


def sparse_model() -> nn.Module:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    sparsify_(model, HALF)
    return model


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(8, 16)).square().sum().backward()
    optimizer.step()


def test_a_model_without_sparse_layers_is_refused():
    model = nn.Sequential(nn.Linear(16, 16))
    with pytest.raises(TopologyError, match=r"no block-sparse layer to attach to; call acf\.sparsify_"):
        attach(model, torch.optim.SGD(model.parameters(), lr=0.1), EVERY_STEP)


def test_an_optimizer_built_before_sparsify_is_refused_because_the_parameters_are_new():
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsify_(model, HALF)
    with pytest.raises(TopologyError) as caught:
        attach(model, optimizer, EVERY_STEP)
    assert str(caught.value) == (
        "the optimizer does not hold 0.weight (2 of 2 sparse layers missing); "
        "build it from model.parameters() after sparsify_, then attach"
    )


def test_an_optimizer_that_lacks_one_layer_is_refused_by_its_name():
    model = sparse_model()
    with pytest.raises(TopologyError, match=r"does not hold 2\.weight \(1 of 2 sparse layers missing\)"):
        attach(model, torch.optim.SGD(model[0].parameters(), lr=0.1), EVERY_STEP)


def test_a_refused_attach_leaves_no_hook_behind():
    model = sparse_model()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with pytest.raises(TopologyError):
        attach(model, optimizer, EVERY_STEP)
    before = model[0].mask()
    train_step(model, optimizer)
    assert torch.equal(model[0].mask(), before)


def test_parameter_groups_are_all_searched():
    model = sparse_model()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.2}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    controller = attach(model, optimizer, EVERY_STEP)
    train_step(model, optimizer)
    assert [change.layer for change in controller.changes] == ["0", "2"]


def count_scorings(layer: BlockSparseLayer) -> list[int]:
    """Grows by the number of absent blocks whenever a backward pass scores them."""
    counts: list[int] = []
    gradient_norms = layer.gradient_norms

    def counting(output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        counts.append(rows.numel())
        return gradient_norms(output_grad, x, rows, cols)

    layer.gradient_norms = counting
    return counts


def test_detach_stops_the_moves_and_removes_every_hook():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    controller = attach(model, optimizer, EVERY_STEP)
    train_step(model, optimizer)
    controller.detach()
    scorings = count_scorings(model[0])
    before = {name: layer.mask() for name, layer in block_sparse_layers(model).items()}
    train_step(model, optimizer)
    assert controller.step == 1
    assert all(torch.equal(layer.mask(), before[name]) for name, layer in block_sparse_layers(model).items())
    assert not optimizer._optimizer_step_post_hooks
    assert scorings == []


def test_after_detach_another_policy_can_take_over():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    attach(model, optimizer, EVERY_STEP).detach()
    controller = attach(model, optimizer, BlockDST(total_steps=10, every=2, schedule="constant"))
    for _ in range(2):
        train_step(model, optimizer)
    assert [change.step for change in controller.changes] == [2, 2]


def test_absent_blocks_are_scored_only_in_the_step_that_moves_blocks():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    attach(model, optimizer, BlockDST(total_steps=12, every=3, stop_at=0.5))
    scorings, scored_steps = count_scorings(model[0]), []
    for step in range(1, 10):
        train_step(model, optimizer)
        scored_steps += [step] * len(scorings)
        scorings.clear()
    assert scored_steps == [3, 6]


def test_evaluation_between_the_steps_changes_nothing():
    models = [sparse_model()]
    models.append(copy.deepcopy(models[0]))
    for model, evaluates in zip(models, (False, True), strict=True):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        attach(model, optimizer, EVERY_STEP)
        for _ in range(3):
            if evaluates:
                with torch.no_grad():
                    model(torch.ones(4, 16))
                model.eval()(torch.ones(4, 16))
                model.train()
            train_step(model, optimizer)
    for name, value in models[0].state_dict().items():
        assert torch.equal(value, models[1].state_dict()[name]), name


def test_a_layer_that_is_frozen_when_attached_keeps_weights_and_blocks():
    model = sparse_model()
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    controller = attach(model, optimizer, EVERY_STEP)
    mask, weight = model[0].mask(), model[0].weight.detach().clone()
    train_step(model, optimizer)
    assert torch.equal(model[0].mask(), mask)
    assert torch.equal(model[0].weight, weight)
    assert [change.layer for change in controller.changes] == ["2"]


def test_a_layer_that_is_frozen_later_keeps_weights_and_blocks_from_then_on():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    controller = attach(model, optimizer, EVERY_STEP)
    model[2].weight.requires_grad_(False)
    mask, weight = model[2].mask(), model[2].weight.detach().clone()
    train_step(model, optimizer)
    assert torch.equal(model[2].mask(), mask)
    assert torch.equal(model[2].weight, weight)
    assert [change.layer for change in controller.changes] == ["0"]


def test_a_frozen_model_is_refused_because_it_is_frozen():
    model = sparse_model().requires_grad_(False)
    with pytest.raises(
        TopologyError, match=r"all 2 are frozen, as 0\.weight\.requires_grad is False; call requires_grad_"
    ):
        attach(model, torch.optim.SGD(model.parameters(), lr=0.1), EVERY_STEP)


def test_a_step_with_a_closure_moves_blocks():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    controller = attach(model, optimizer, EVERY_STEP)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.randn(8, 16)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert [change.moved_blocks for change in controller.changes] == [4, 4]


def test_a_learning_rate_scheduler_does_not_hide_the_steps():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    controller = attach(model, optimizer, EVERY_STEP)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    for _ in range(3):
        train_step(model, optimizer)
        scheduler.step()
    assert controller.step == 3
    assert len(controller.changes) == 6


def test_a_copy_of_a_model_in_training_does_not_score_absent_blocks():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    controller = attach(model, optimizer, EVERY_STEP)
    copied = copy.deepcopy(model)
    of_the_model, of_the_copy = count_scorings(model[0]), count_scorings(copied[0])
    copied(torch.randn(8, 16)).sum().backward()
    assert (of_the_model, of_the_copy) == ([], [])
    model(torch.randn(8, 16)).sum().backward()
    assert (of_the_model, of_the_copy) == ([8], [])
    controller.detach()


def test_a_model_that_nobody_holds_any_more_is_freed_though_it_was_never_detached():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    attach(model, optimizer, EVERY_STEP)
    train_step(model, optimizer)
    weight = weakref.ref(model[0].weight)
    del model, optimizer
    gc.collect()
    assert weight() is None


def test_a_second_controller_on_the_same_layers_is_refused():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    attach(model, optimizer, EVERY_STEP)
    with pytest.raises(TopologyError, match="0 is attached to a controller already"):
        attach(model, optimizer, EVERY_STEP)


def test_a_move_without_scores_is_reported(monkeypatch):
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    controller = attach(model, optimizer, EVERY_STEP)
    assert controller.moves_next
    monkeypatch.setattr(observe, "_OBSERVERS", {})  # what a replayed CUDA graph amounts to
    with pytest.warns(
        UserWarning, match="no block moved at step 1: no absent block was scored, though a backward pass ran"
    ):
        train_step(model, optimizer)
    assert controller.changes == []


def test_layers_are_named_as_in_the_model_inside_a_compiled_one():
    model = sparse_model()
    controller = attach(torch.compile(model, backend="eager"), torch.optim.SGD(model.parameters(), lr=0.01), EVERY_STEP)
    assert list(controller.layers) == ["0", "2"]
