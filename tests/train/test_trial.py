"""Optimizers that fail on fresh state are found on a small parameter, before any block moves."""

from typing import Any

import pytest
import torch
from torch import nn

import acf
from acf.errors import TopologyError
from acf.train.optimizer_state import STATE_RULES
from acf.train.trial import why_not_afresh

MOVES = acf.BlockDST(total_steps=100, every=2, fraction=0.5, schedule="constant")


class Divides(torch.optim.Optimizer):
    """Gradient descent divided by a running sum that starts at one."""

    calls = 0

    def __init__(self, parameters: Any, lr: float = 0.1) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.calls += 1
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if not state:
                state["sum"] = torch.ones_like(parameter)
            parameter.sub_(parameter.grad / state["sum"], alpha=self.param_groups[0]["lr"])
            state["sum"].add_(parameter.grad.square())


class Raises(Divides):
    """As `Divides`, with a check of its own."""

    def step(self, closure: Any = None) -> None:
        if any(not state["sum"].all() for state in self.state.values()):
            raise RuntimeError("the sum must be positive")
        super().step()


def sparse_model() -> nn.Module:
    model = nn.Sequential(nn.Linear(16, 16))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=4))
    return model


@pytest.mark.parametrize(
    ("optimizer_class", "failure"),
    [(Divides, "gives values that are not finite"), (Raises, r"raises RuntimeError \(the sum must be positive\)")],
)
def test_an_optimizer_that_fails_from_zero_is_refused_by_name_when_attaching(optimizer_class, failure):
    model = sparse_model()
    optimizer = optimizer_class(model.parameters())
    name = optimizer_class.__name__
    with pytest.raises(TopologyError, match=rf"{name} {failure} once .*register_optimizer_state\({name}, rule\)"):
        acf.attach(model, optimizer, MOVES)
    assert not optimizer._optimizer_step_post_hooks
    acf.attach(model, optimizer, acf.StaticTopology())


def test_a_registered_rule_is_trusted():
    def rule(state, kept_slots, new_slots):
        state["sum"] = state["sum"][kept_slots].masked_fill_(new_slots[:, None, None], 1.0)

    acf.register_optimizer_state(Divides, rule)
    try:
        model = sparse_model()
        optimizer = Divides(model.parameters(), lr=0.01)
        controller = acf.attach(model, optimizer, MOVES)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
    finally:
        del STATE_RULES[Divides]
    assert len(controller.changes) == 2
    assert model[0].weight.isfinite().all()


def test_the_trial_leaves_the_optimizer_and_the_random_numbers_as_they_are():
    weight = nn.Parameter(torch.ones(4, 2, 2))
    optimizer = Divides([weight])
    torch.manual_seed(3)
    expected = torch.randn(2)
    torch.manual_seed(3)
    assert why_not_afresh(optimizer, weight)
    assert torch.equal(torch.randn(2), expected)
    assert (optimizer.calls, dict(optimizer.state), weight.grad) == (0, {}, None)
    assert torch.equal(weight, torch.ones_like(weight))


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1), foreach=True, capturable=True),
        lambda p: torch.optim.LBFGS(p),  # needs a closure, so a trial tells nothing
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    ],
)
def test_optimizers_that_start_from_zero_or_cannot_be_tried_pass(make):
    weight = nn.Parameter(torch.ones(4, 2, 2))
    assert why_not_afresh(make([weight]), weight) == ""


def test_an_optimizer_with_a_learning_rate_schedule_is_tried_too():
    weight = nn.Parameter(torch.ones(4, 2, 2))
    optimizer = Divides([weight])
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # wraps this optimizer's step
    assert why_not_afresh(optimizer, weight)
    assert optimizer.calls == 0
