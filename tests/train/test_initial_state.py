"""A new block starts at the optimizer's own initial value, which is not zero for every optimizer."""

import pytest
import torch
from torch import nn

import acf
from acf.train.initial_state import INITIAL_VALUES, initial_value

MOVES = acf.BlockDST(total_steps=100, every=2, fraction=0.5, schedule="constant")


def regrown_after_two_steps(make_optimizer, init: str = "sparse"):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=4, init=init))
    optimizer = make_optimizer(model.parameters())
    acf.attach(model, optimizer, MOVES)
    for _ in range(2 if init == "sparse" else 6):
        before = model[0].mask()
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    new = ~before[model[0].block_rows.long(), model[0].block_cols.long()]
    assert new.any()
    return model[0], optimizer, new


@pytest.mark.parametrize("init", ["sparse", "dense"])
def test_rprop_gives_new_blocks_the_step_size_of_a_fresh_parameter(init):
    layer, optimizer, new = regrown_after_two_steps(lambda parameters: torch.optim.Rprop(parameters, lr=0.02), init)
    sizes = optimizer.state[layer.weight]["step_size"]
    assert torch.equal(sizes[new], torch.full_like(sizes[new], 0.02))


def test_adagrad_gives_new_blocks_its_initial_accumulator():
    layer, optimizer, new = regrown_after_two_steps(
        lambda parameters: torch.optim.Adagrad(parameters, initial_accumulator_value=0.5)
    )
    sums = optimizer.state[layer.weight]["sum"]
    assert torch.equal(sums[new], torch.full_like(sums[new], 0.5))
    assert (sums[~new] > 0.5).any()


def test_a_derived_class_starts_like_its_base():
    class Own(torch.optim.Rprop):
        pass

    weight = nn.Parameter(torch.zeros(2, 2, 2))
    assert initial_value(Own([weight], lr=0.3), weight, "step_size") == 0.3
    assert initial_value(Own([weight], lr=0.3), weight, "prev") == 0.0


OPTIONS = {"BSAM": {"num_data": 100}}


@pytest.mark.parametrize("name", [name for package, name in INITIAL_VALUES if package == "pytorch_optimizer"])
def test_the_initial_values_are_those_that_the_optimizer_itself_writes(name):
    package = pytest.importorskip("pytorch_optimizer", reason="pytorch_optimizer is not installed")
    optimizer_class = getattr(package, name, None)
    if optimizer_class is None:
        pytest.skip(f"this pytorch_optimizer has no {name}")
    weight = nn.Parameter(torch.ones(2, 3, 3))
    weight.grad = torch.ones_like(weight)
    optimizer = optimizer_class([weight], **OPTIONS.get(name, {}))
    if not hasattr(optimizer, "init_group"):
        pytest.skip("this pytorch_optimizer initialises inside step")
    optimizer.init_group(optimizer.param_groups[0])
    for entry, value in optimizer.state[weight].items():
        if entry in INITIAL_VALUES["pytorch_optimizer", name]:
            assert torch.equal(value, torch.full_like(value, initial_value(optimizer, weight, entry))), entry
        elif isinstance(value, torch.Tensor) and value.dim():
            assert not value.any() or torch.equal(value, weight), f"{entry} starts at neither zero nor the weight"
