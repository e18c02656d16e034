"""Gated MLPs are found by their layers and by what they compute."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import acf
from acf.errors import SparsityError
from acf.nn import BlockSparsity, GatedMLP, fuse_gated_mlps_, sparsify_


class LlamaMLP(nn.Module):
    """As LLaMA's, in a library of models."""

    def __init__(self, act_fn: nn.Module | None = None) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(32, 64, bias=False) for _ in range(2))
        self.down_proj, self.act_fn = nn.Linear(64, 32, bias=False), act_fn or nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Swapped(LlamaMLP):
    """The gate on the other side."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))


class Dropping(LlamaMLP):
    """With dropout, which shows in training only."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(super().forward(x), 0.5, self.training)


class TanhGelu(nn.Module):
    """An activation of a library's own class."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")


@pytest.mark.parametrize("sparse_first", [True, False])
def test_a_model_of_a_library_needs_one_line(sparse_first: bool) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"layer": nn.Sequential(nn.LayerNorm(32), LlamaMLP())})
    if not sparse_first:
        assert fuse_gated_mlps_(model) == ("layer.1",)
    names = list(model.state_dict())
    sparsify_(model, BlockSparsity(0.5, block=16))
    x = torch.randn(4, 32)
    expected = model["layer"](x)
    if sparse_first:
        assert fuse_gated_mlps_(model) == ("layer.1",)
    assert type(model["layer"][1]) is GatedMLP
    assert model["layer"][1].why_separate(x) == ""
    assert [name for name in model.state_dict() if "block_" not in name] == names
    torch.testing.assert_close(model["layer"](x), expected)


def test_an_activation_is_known_by_its_values() -> None:
    model = nn.Sequential(LlamaMLP(TanhGelu()))
    x = torch.randn(4, 32)
    expected = model(x)
    fuse_gated_mlps_(model)
    assert str(model[0].act_fn) == "GELU(approximate='tanh')"
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize(
    ("mlp", "reason"),
    [
        (Swapped(), "its result is another function of these layers"),
        (Dropping().eval(), "its result is another function of these layers"),
        (LlamaMLP(nn.Mish()), "no product takes in the activation Mish"),
    ],
    ids=["swapped", "dropout", "activation"],
)
def test_a_module_that_computes_something_else_is_left_alone(mlp: nn.Module, reason: str) -> None:
    model = nn.Sequential(mlp)
    training = mlp.training
    with pytest.raises(SparsityError, match=reason):
        fuse_gated_mlps_(model)
    assert model[0] is mlp
    assert mlp.training == training


def test_a_module_with_further_layers_is_left_alone() -> None:
    mlp = LlamaMLP()
    mlp.norm = nn.LayerNorm(32)
    with pytest.raises(SparsityError, match="'0' is none: it holds more than these layers: norm"):
        acf.fuse_gated_mlps_(nn.Sequential(mlp))


def test_a_model_without_gated_layers_is_refused() -> None:
    with pytest.raises(SparsityError, match="no module has these layers"):
        fuse_gated_mlps_(nn.Sequential(nn.Linear(4, 4)))


def test_a_result_of_zeros_tells_nothing() -> None:
    mlp = Swapped()
    nn.init.zeros_(mlp.down_proj.weight)
    with pytest.raises(SparsityError, match="weights of a layer are all zero, so its result does not tell"):
        fuse_gated_mlps_(nn.Sequential(mlp))
