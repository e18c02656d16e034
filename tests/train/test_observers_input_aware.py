"""Magnitudes weighed by the inputs that reach a block."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from acf.masks import BlockDST
from acf.nn import BlockSparsity, sparsify_
from acf.train import TopologyController, attach

AWARE = BlockDST(total_steps=100, every=4, fraction=0.5, schedule="constant", score="input_aware", momentum=0.5)


def sparse_linear() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    return model


def step(model: nn.Module, controller: TopologyController, *batches: torch.Tensor, forward=None) -> None:
    controller.optimizer.zero_grad()
    for x in batches:
        (forward or model)(x).square().mean().backward()
    controller.optimizer.step()


def attached(model: nn.Module, policy=AWARE, lr: float = 0.05) -> TopologyController:
    return attach(model, torch.optim.SGD(model.parameters(), lr=lr), policy)


def input_squares(controller: TopologyController, layer: str = "0") -> torch.Tensor:
    return controller.state_dict()["layers"][layer]["input_squares"]


def test_the_running_mean_square_of_the_inputs_follows_the_momentum():
    model = sparse_linear()
    controller = attached(model)
    first, second, third = torch.randn(3, 8, 16).unbind()
    step(model, controller, first)
    torch.testing.assert_close(input_squares(controller), first.square().mean(0))
    step(model, controller, second, third)
    expected = 0.5 * first.square().mean(0) + 0.5 * torch.cat([second, third]).square().mean(0)
    torch.testing.assert_close(input_squares(controller), expected)


def test_evaluation_and_overflowed_passes_do_not_count():
    model = sparse_linear()
    controller = attached(model)
    x = torch.randn(8, 16)
    model.eval()(torch.full((4, 16), 100.0))
    model.train()
    (model(torch.full((4, 16), 3.0)).sum() * torch.inf).backward()
    step(model, controller, x)
    torch.testing.assert_close(input_squares(controller), x.square().mean(0))


def test_a_pass_that_activation_checkpointing_runs_twice_counts_once():
    model = sparse_linear()
    controller = attached(model)
    x = torch.randn(8, 16)
    step(model, controller, x, x, forward=lambda x: checkpoint(model, x, use_reentrant=False))
    torch.testing.assert_close(input_squares(controller), x.square().mean(0))
    assert controller.step == 1


def test_a_convolution_counts_its_channels_once_per_kernel_tap():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    controller = attached(model)
    x = torch.randn(2, 8, 5, 5)
    step(model, controller, x)
    torch.testing.assert_close(input_squares(controller), x.square().mean((0, 2, 3)).repeat(9))


@pytest.mark.parametrize("score", ["magnitude", "input_aware"])
def test_blocks_that_only_meet_faint_inputs_are_dropped_first_where_the_score_sees_inputs(score):
    model = sparse_linear()
    layer = model[0]
    with torch.no_grad():
        layer.weight.fill_(1.0)
        faint = layer.block_cols < 2
        layer.weight[faint] = 1.1  # a little stronger, but nothing reaches them
    loud = torch.ones(8, 16)
    loud[:, :8] = 0.01
    before = layer.mask()
    controller = attached(model, BlockDST(100, every=1, fraction=0.25, schedule="constant", score=score), lr=1e-6)
    step(model, controller, loud * torch.randn(8, 16).sign())
    dropped = torch.nonzero(before & ~layer.mask())
    assert len(dropped) == 2
    assert bool((dropped[:, 1] < 2).all()) is (score == "input_aware")


def test_a_resumed_run_has_the_running_means_and_equals_the_uninterrupted_one():
    batches = torch.randn(12, 8, 16).unbind()
    whole, first, second = sparse_linear(), sparse_linear(), sparse_linear()
    controllers = [attached(model) for model in (whole, first, second)]
    for x in batches:
        step(whole, controllers[0], x)
    for x in batches[:6]:
        step(first, controllers[1], x)
    second.load_state_dict(first.state_dict())
    controllers[2].load_state_dict(copy.deepcopy(controllers[1].state_dict()))
    for x in batches[6:]:
        step(second, controllers[2], x)
    assert torch.equal(input_squares(controllers[2]), input_squares(controllers[0]))
    for name, value in whole.state_dict().items():
        assert torch.equal(second.state_dict()[name], value), name


def test_a_compiled_model_gathers_the_same_means_in_one_graph():
    torch._dynamo.reset()
    eager, compiled = sparse_linear(), sparse_linear()
    controllers = [attached(model) for model in (eager, compiled)]
    forward = torch.compile(compiled, backend="aot_eager", fullgraph=True)
    for x in torch.randn(6, 8, 16).unbind():
        step(eager, controllers[0], x)
        step(compiled, controllers[1], x, forward=forward)
    torch.testing.assert_close(input_squares(controllers[1]), input_squares(controllers[0]))
    assert torch.equal(compiled[0].mask(), eager[0].mask())
    torch._dynamo.reset()
