"""Every optimizer that trains packed weights follows moves and prunes, or is refused by name before the first."""

import inspect
import math
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn

import acf
from acf.errors import TopologyError

MOVES = acf.BlockDST(total_steps=100, every=2, fraction=0.5, schedule="constant")
OTHER_PACKAGES = ("pytorch_optimizer", "schedulefree", "transformers.optimization")
OPTIONS: dict[str, dict[str, Any]] = {
    "BSAM": {"num_data": 100},
    "LBFGS": {"max_iter": 4},
    "Ranger21": {"num_iterations": 9},
}


def optimizer_classes(package: str) -> Iterator[type]:
    """The optimizers of a package that is installed."""
    if find_spec(package.split(".")[0]) is None:
        return
    for value in vars(import_module(package)).values():
        if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer:
            yield value


def own_optimizers() -> list[type]:
    return list(optimizer_classes("torch.optim"))


def other_optimizers() -> list[type]:
    found = {each for package in OTHER_PACKAGES for each in optimizer_classes(package)}
    return sorted((each for each in found if not each.__module__.startswith("torch.")), key=lambda each: each.__name__)


class Run:
    """A small network trained with one optimizer."""

    def __init__(self, optimizer_class: type, init: str, policy: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 8))
        acf.sparsify_(self.model, acf.BlockSparsity(0.5, block=4, init=init))
        self.optimizer = optimizer_class(self.model.parameters(), **OPTIONS.get(optimizer_class.__name__, {}))
        if hasattr(self.optimizer, "train"):
            self.optimizer.train()  # a schedule-free optimizer refuses to step otherwise
        self.twice = "Hess" in optimizer_class.__name__ or "Sophia" in optimizer_class.__name__
        self.controller = acf.attach(self.model, self.optimizer, policy)
        self.batch = torch.randn(8, 16), torch.randn(8, 8)

    def loss(self) -> Any:
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(self.batch[0]), self.batch[1])
        loss.backward(create_graph=self.twice)
        return loss

    def train(self) -> None:
        for _ in range(6):
            self.masks = [self.model[index].mask() for index in (0, 2)]
            with torch.enable_grad():
                loss = self.loss()
            try:
                self.optimizer.step()
            except Exception as error:
                if isinstance(error, TopologyError) or "closure" not in str(error).lower():
                    raise
                self.optimizer.step(torch.enable_grad()(self.loss))
        assert math.isfinite(loss.item())
        assert all(bool(parameter.isfinite().all()) for parameter in self.model.parameters())

    def has_moved(self) -> bool:
        masks = [self.model[index].mask() for index in (0, 2)]
        return any(not torch.equal(before, after) for before, after in zip(self.masks, masks, strict=True))


def trains_without_moves(optimizer_class: type) -> bool:
    try:
        Run(optimizer_class, "sparse", acf.StaticTopology()).train()
    except Exception:
        return False
    return True


def refusal_of(optimizer_class: type, init: str) -> TopologyError | None:
    """The refusal, which must leave the topology alone; None after moves at all the steps of the policy."""
    run = None
    try:
        run = Run(optimizer_class, init, MOVES)
        run.train()
    except TopologyError as error:
        assert run is None or not (run.has_moved() or run.controller.changes)
        return error
    assert {change.step for change in run.controller.changes} == {2, 4, 6}
    return None


def check(optimizer_class: type, init: str) -> None:
    if not trains_without_moves(optimizer_class):
        pytest.skip(f"{optimizer_class.__name__} does not train packed weights by itself")
    refusal = refusal_of(optimizer_class, init)
    assert refusal is None or optimizer_class.__name__ in str(refusal)


@pytest.mark.parametrize("init", ["sparse", "dense"])
@pytest.mark.parametrize("optimizer_class", own_optimizers(), ids=lambda each: each.__name__)
def test_the_optimizers_of_torch_follow_or_refuse(optimizer_class, init):
    check(optimizer_class, init)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("optimizer_class", other_optimizers(), ids=lambda each: each.__name__)
def test_the_optimizers_of_other_packages_follow_or_refuse(optimizer_class):
    check(optimizer_class, "dense")
