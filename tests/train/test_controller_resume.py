"""A run that is saved and resumed goes on exactly as if it had never stopped."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from acf.errors import TopologyError
from acf.masks import BlockDST
from acf.nn import BlockSparsity, sparsify_
from acf.train import TopologyController, attach

POLICY = BlockDST(total_steps=50, every=4, fraction=0.4)


class Run:
    """A model, its optimizer and its controller, trained on batches that depend on the step alone."""

    def __init__(self, make_optimizer: Callable[..., torch.optim.Optimizer], seed: int, policy=POLICY) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        sparsify_(self.model, BlockSparsity(sparsity=0.75, block=4))
        self.optimizer = make_optimizer(self.model.parameters())
        self.controller: TopologyController = attach(self.model, self.optimizer, policy)

    def train(self, steps: range) -> None:
        for step in steps:
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(8, 16, generator=generator)
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x), x.flip(1)).backward()
            self.optimizer.step()

    def checkpoint(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "topology": self.controller.state_dict(),
        }

    def load(self, checkpoint: dict[str, Any]) -> None:
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.controller.load_state_dict(checkpoint["topology"])


OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}


@pytest.mark.parametrize("saved_at", [18, 19, 20], ids=lambda step: f"saved at {step}")
@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_a_run_resumed_from_a_file_equals_the_uninterrupted_one_bit_for_bit(make_optimizer, saved_at, tmp_path):
    whole = Run(make_optimizer, seed=1)
    whole.train(range(40))

    first = Run(make_optimizer, seed=1)
    first.train(range(saved_at))
    torch.save(first.checkpoint(), tmp_path / "run.pt")
    second = Run(make_optimizer, seed=2)
    second.load(torch.load(tmp_path / "run.pt", weights_only=True))
    second.train(range(saved_at, 40))

    assert second.controller.step == whole.controller.step == 40
    assert second.controller.changes == [change for change in whole.controller.changes if change.step > saved_at]
    assert any(change.moved_blocks for change in second.controller.changes)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value), name
    assert_same_optimizer_state(second.optimizer.state_dict(), whole.optimizer.state_dict())


def assert_same_optimizer_state(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    assert actual["param_groups"] == expected["param_groups"]
    assert actual["state"].keys() == expected["state"].keys()
    for index, state in expected["state"].items():
        for key, value in state.items():
            assert torch.equal(actual["state"][index][key], value), f"{index} {key}"


@pytest.mark.parametrize("saved_at", [17, 18, 19, 20, 21], ids=lambda step: f"saved at {step}")
def test_scores_of_several_steps_and_the_grace_of_new_blocks_survive_a_checkpoint(saved_at):
    policy = BlockDST(total_steps=50, every=4, fraction=0.4, score_steps=3, grace_moves=1)
    whole, first, second = (Run(OPTIMIZERS["SGD"], seed, policy) for seed in (1, 1, 2))
    whole.train(range(40))
    first.train(range(saved_at))
    second.load(copy.deepcopy(first.checkpoint()))
    second.train(range(saved_at, 40))
    for name, value in whole.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value), name


def test_a_run_that_forgets_the_topology_state_would_not_be_the_same():
    """Guards the test above: the step count matters, so a controller that ignored it would be caught."""
    whole, first, second = (Run(OPTIMIZERS["SGD"], seed=1) for _ in range(3))
    whole.train(range(30))
    first.train(range(18))
    second.load({**first.checkpoint(), "topology": second.controller.state_dict()})
    second.train(range(18, 30))
    assert not torch.equal(second.model[0].mask(), whole.model[0].mask())


def test_the_topology_state_is_plain_values_and_tensors():
    run = Run(OPTIMIZERS["SGD"], seed=1)
    run.train(range(3))
    state = run.controller.state_dict()
    layers = state.pop("layers")
    assert state == {
        "version": 1,
        "step": 3,
        "policy": {
            "method": "BlockDST",
            "total_steps": 50,
            "every": 4,
            "fraction": 0.4,
            "schedule": "cosine",
            "stop_at": 0.75,
            "seed": 0,
            "start_at": 0.0,
            "shrink_until": 0.0,
            "grace_moves": 0,
            "score": "magnitude",
            "momentum": 0.9,
            "candidates": None,
            "score_steps": 1,
        },
    }
    assert layers.keys() == {"0", "2"}
    assert torch.equal(layers["0"].pop("explored"), run.model[0].mask())
    assert (layers["0"].pop("grown_at") < 0).all()
    assert layers["0"] == {"flip_rate": 0.0, "input_squares": None, "growth_squares": None}


def test_the_state_of_another_model_is_refused_by_the_layer_that_differs():
    controller = Run(OPTIMIZERS["SGD"], seed=1).controller
    state = controller.state_dict()
    state["layers"]["2"]["explored"] = torch.ones(2, 4, dtype=torch.bool)
    with pytest.raises(TopologyError, match="layer 2 has a 2 x 4 grid of blocks in the checkpoint and a 4 x 8 grid"):
        controller.load_state_dict(state)
    del state["layers"]["2"]
    with pytest.raises(TopologyError, match="layer 2 has a missing grid in the checkpoint"):
        controller.load_state_dict(state)


@pytest.mark.parametrize(
    ("state", "keys"),
    [({}, "none"), ({"step": 3}, "step"), ({"state": {}, "param_groups": []}, "param_groups, state")],
    ids=["empty", "half", "an optimizer's"],
)
def test_a_foreign_state_is_refused_by_its_keys(state, keys):
    controller = Run(OPTIMIZERS["SGD"], seed=1).controller
    with pytest.raises(TopologyError) as caught:
        controller.load_state_dict(state)
    assert f"this one has {keys}; pass what TopologyController.state_dict() returned" in str(caught.value)
    assert controller.step == 0


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("method", "SET"),
        ("total_steps", 60),
        ("every", 5),
        ("fraction", 0.1),
        ("schedule", "constant"),
        ("stop_at", 0.5),
        ("seed", 7),
        ("score", "input_aware"),
        ("candidates", 0.5),
    ],
)
def test_the_state_of_another_policy_is_refused_by_the_setting_that_differs(setting, value):
    controller = Run(OPTIMIZERS["SGD"], seed=1).controller
    state = controller.state_dict()
    mine = state["policy"][setting]
    other = {**state, "step": 8, "policy": {**state["policy"], setting: value}}
    with pytest.raises(TopologyError) as caught:
        controller.load_state_dict(other)
    assert f"made with {setting}={value}, this policy has {setting}={mine}; attach the policy" in str(caught.value)
    assert controller.step == 0


def test_a_state_of_a_newer_format_is_refused_by_both_numbers():
    controller = Run(OPTIMIZERS["SGD"], seed=1).controller
    with pytest.raises(TopologyError, match="the topology state has format 2, this release of acf reads formats up to"):
        controller.load_state_dict({**controller.state_dict(), "version": 2})


def test_a_state_from_before_a_setting_existed_loads_where_the_policy_has_its_default():
    run = Run(OPTIMIZERS["SGD"], seed=1)
    run.train(range(3))
    state = run.controller.state_dict()
    del state["version"], state["policy"]["score_steps"], state["policy"]["grace_moves"]
    resumed = Run(OPTIMIZERS["SGD"], seed=2)
    resumed.load({**run.checkpoint(), "topology": state})
    assert resumed.controller.step == 3
    other = Run(OPTIMIZERS["SGD"], seed=2, policy=BlockDST(total_steps=50, every=4, fraction=0.4, grace_moves=1))
    with pytest.raises(TopologyError, match="made with grace_moves=0, this policy has grace_moves=1"):
        other.load({**run.checkpoint(), "topology": state})


def test_a_state_with_a_setting_that_this_policy_does_not_have_is_refused_by_name():
    controller = Run(OPTIMIZERS["SGD"], seed=1).controller
    state = controller.state_dict()
    state["policy"]["temperature"] = 2.0
    with pytest.raises(TopologyError, match=r"temperature=2\.0, a setting that this BlockDST does not have"):
        controller.load_state_dict(state)


def test_a_topology_loaded_before_a_move_is_the_one_that_moves():
    """A model rolled back to older weights, or to those of another run, while a controller is attached."""
    model, other = (nn.Sequential(nn.Linear(16, 16)) for _ in range(2))
    for each in (model, other):
        sparsify_(each, BlockSparsity(sparsity=0.5, block=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    attach(model, optimizer, BlockDST(total_steps=10, every=1, fraction=1.0, schedule="constant"))
    model.load_state_dict(other.state_dict())
    model(torch.randn(8, 16)).square().sum().backward()
    optimizer.step()
    assert torch.equal(model[0].mask(), ~other[0].mask())  # every present block moved, to every absent one


def test_a_checkpoint_of_the_design_loads_from_one_file(tmp_path: Path):
    run = Run(OPTIMIZERS["SGD"], seed=1)
    run.train(range(5))
    path = tmp_path / "checkpoint.pt"
    torch.save({"model": run.model.state_dict(), "topology": run.controller.state_dict()}, path)
    assert set(torch.load(path, weights_only=True)) == {"model", "topology"}
