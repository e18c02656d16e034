"""Arguments of another kind than a function takes are refused in one line, by their names."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import acf
from acf import runtime
from acf.errors import ArgumentError
from acf.ops import block_linear
from acf.ops.linear import block_gradient_norms
from acf.sparse import BlockLayout, BlockTopology


def sparse_model() -> nn.Module:
    model = nn.Sequential(nn.Linear(16, 16))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=8))
    return model


def attach_to(optimizer: Any, policy: Any) -> None:
    acf.attach(sparse_model(), optimizer, policy)


CALLS: dict[str, Callable[[], object]] = {
    "sparsify_": lambda: acf.sparsify_(3, acf.BlockSparsity(0.5, block=8)),  # type: ignore[arg-type]
    "densify_": lambda: acf.densify_("model"),  # type: ignore[arg-type]
    "weight_sparsity": lambda: acf.weight_sparsity(None),  # type: ignore[arg-type]
    "capture": lambda: acf.capture(1).__enter__(),  # type: ignore[arg-type]
    "plan": lambda: acf.plan([], torch.ones(1), 0.5),  # type: ignore[arg-type]
    "attach, optimizer": lambda: attach_to(3, acf.BlockDST(total_steps=10, every=2)),
    "attach, policy": lambda: attach_to(torch.optim.SGD([torch.ones(1)], lr=0.1), "rigl"),
    "offload, model": lambda: acf.offload("model"),  # type: ignore[arg-type]
    "offload, device": lambda: acf.offload(nn.Linear(4, 4), 3),  # type: ignore[arg-type]
    "GraphedStep": lambda: acf.GraphedStep(3, torch.optim.SGD([torch.ones(1)], lr=0.1)),  # type: ignore[arg-type]
    "warm_up": lambda: acf.warm_up(sparse_model(), lambda x: x, torch.ones(2, 16)),
    "report": lambda: acf.report([3], "page.html"),  # type: ignore[list-item]
    "EnergyMeter": lambda: acf.EnergyMeter(3),  # type: ignore[arg-type]
    "forward": lambda: sparse_model()(None),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_of_another_kind_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(ArgumentError) as error:
        CALLS[name]()
    assert len(str(error.value).splitlines()) == 1
    assert ";" in str(error.value), "the remedy follows a semicolon"


def test_operands_that_a_kernel_could_not_read_are_refused() -> None:
    layout = BlockLayout(16, 16, 8, 8)
    topology = BlockTopology.from_mask(layout, torch.eye(2, dtype=torch.bool))
    with pytest.raises(ValueError, match="cannot be multiplied"):
        block_linear(torch.ones(()), torch.ones(2, 8, 8), topology)
    with pytest.raises(ValueError, match="a weight of 1 packed blocks does not fit a topology of 2"):
        block_linear(torch.ones(4, 16), torch.ones(1, 8, 8), topology)
    with pytest.raises(ValueError, match=r"block \(9, 0\) lies outside the 2 x 2 grid"):
        block_gradient_norms(torch.ones(4, 16), torch.ones(4, 16), torch.tensor([9]), torch.tensor([0]), (8, 8))


def test_a_cost_that_is_no_time_leaves_the_device_usable() -> None:
    device = runtime.Device("sim", "acf-1")
    for seconds in (None, float("nan"), -1.0, "x"):
        with pytest.raises(runtime.InvalidValueError, match="costs no finite time"):
            device.charge("compute", runtime.Cost(seconds))  # type: ignore[arg-type]
    device.synchronize()
