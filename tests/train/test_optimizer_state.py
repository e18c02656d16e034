"""A regrown block starts afresh in the optimizer too, whichever optimizer it is."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from acf.masks import BlockDST
from acf.nn import BlockSparsity, sparsify_
from acf.train import attach


class OddMomentum(torch.optim.Optimizer):
    """Momentum under an odd name, next to state of other kinds and shapes."""

    def __init__(self, parameters) -> None:
        super().__init__(parameters, {"lr": 0.05})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["the drift, averaged"] = torch.zeros_like(parameter)
                    state[("tuple", "key")] = torch.full_like(parameter, 0.5, dtype=torch.float64)
                    state["counts"] = torch.ones(3, dtype=torch.int64)
                    state["calls"] = 0
                    state["note"] = "kept"
                drift = state["the drift, averaged"]
                drift.mul_(0.9).add_(parameter.grad)
                state["calls"] += 1
                state["counts"] += 1
                parameter.sub_(drift, alpha=group["lr"])


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.9, centered=True),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.05),
    "home-made": OddMomentum,
}


def trained(make_optimizer: Callable[..., torch.optim.Optimizer]) -> tuple[nn.Module, torch.optim.Optimizer, Tensor]:
    """A layer after four steps, of which the fourth moved blocks; and which slots were regrown then."""
    model = nn.Sequential(nn.Linear(16, 16))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    optimizer = make_optimizer(model.parameters())
    attach(model, optimizer, BlockDST(total_steps=100, every=4, fraction=0.5, schedule="constant"))
    before = (model[0].block_rows.clone(), model[0].block_cols.clone())
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    regrown = (model[0].block_rows != before[0]) | (model[0].block_cols != before[1])
    assert regrown.sum() == 4
    return model, optimizer, regrown


def slot_state(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[object, Tensor]:
    tensors = {key: value for key, value in optimizer.state[parameter].items() if isinstance(value, Tensor)}
    return {key: value for key, value in tensors.items() if value.shape == parameter.shape}


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_regrown_blocks_start_with_zero_weight_and_zero_optimizer_state(make_optimizer):
    model, optimizer, regrown = trained(make_optimizer)
    state = slot_state(optimizer, model[0].weight)
    assert state
    assert not model[0].weight[regrown].any()
    for key, value in state.items():
        assert not value[regrown].any(), key


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_blocks_that_stayed_keep_their_optimizer_state(make_optimizer):
    model, optimizer, regrown = trained(make_optimizer)
    for key, value in slot_state(optimizer, model[0].weight).items():
        assert value[~regrown].flatten(1).any(dim=1).all(), key


def test_state_that_does_not_belong_to_blocks_is_left_alone():
    model, optimizer, _ = trained(OddMomentum)
    for parameter in model.parameters():
        state = optimizer.state[parameter]
        assert (state["calls"], state["note"], state["counts"].tolist()) == (4, "kept", [5, 5, 5])
    assert optimizer.state[model[0].bias]["the drift, averaged"].all()


def test_the_step_counts_of_adam_go_on():
    model, optimizer, _ = trained(OPTIMIZERS["Adam"])
    assert optimizer.state[model[0].weight]["step"] == 4


def test_the_factored_state_of_adafactor_starts_afresh_for_regrown_blocks_alone():
    model, optimizer, regrown = trained(lambda parameters: torch.optim.Adafactor(parameters, lr=0.01))
    for factor in (optimizer.state[model[0].weight][key] for key in ("row_var", "col_var")):
        assert factor[~regrown].flatten(1).any(dim=1).all()
        assert not factor[regrown].any()


def test_an_optimizer_without_state_needs_none():
    model, optimizer, regrown = trained(lambda parameters: torch.optim.SGD(parameters, lr=0.05))
    assert not slot_state(optimizer, model[0].weight)
    assert not model[0].weight[regrown].any()
