"""MLPs of other libraries are found by their layers and by what they compute."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import acf
from acf.errors import SparsityError
from acf.nn import BlockSparsity, FusedSequential, fuse_mlps_, sparsify_
from tests.ops.conftest import OpLog


class TimmMlp(nn.Module):
    """As timm's."""

    def __init__(self, drop: float = 0.0, last_drop: float = 0.0, act: nn.Module | None = None) -> None:
        super().__init__()
        self.fc1, self.act, self.drop1 = nn.Linear(32, 64), act or nn.GELU(), nn.Dropout(drop)
        self.norm, self.fc2, self.drop2 = nn.Identity(), nn.Linear(64, 32), nn.Dropout(last_drop)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop2(self.fc2(self.norm(self.drop1(self.act(self.fc1(x))))))


class QuickGelu(nn.Module):
    """Of CLIP: no activation that a product takes in."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class TanhGelu(nn.Module):
    """GELU by tanh in a library's own class."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")


class SiglipMlp(nn.Module):
    """As SigLIP's and CLIP's in transformers: the activation stands before the layers."""

    def __init__(self, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.activation_fn = activation or TanhGelu()
        self.fc1, self.fc2 = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation_fn(self.fc1(x)))


class Residual(SiglipMlp):
    """With its own input added."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class MlpOfTorchvision(nn.Sequential):
    """A sequence under another name."""


def sequence() -> nn.Sequential:
    return MlpOfTorchvision(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.0), nn.Linear(64, 32), nn.Dropout(0.0))


MLPS = {"timm": TimmMlp, "siglip": SiglipMlp, "torchvision": sequence, "sequence": lambda: nn.Sequential(*sequence())}


@pytest.mark.parametrize("sparse_first", [True, False])
@pytest.mark.parametrize("library", MLPS)
def test_a_model_of_a_library_needs_one_line(library: str, sparse_first: bool) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"layer": nn.Sequential(nn.LayerNorm(32), MLPS[library]())})
    if not sparse_first:
        assert fuse_mlps_(model) == ("layer.1",)
    names = set(model.state_dict())
    sparsify_(model, BlockSparsity(0.5, block=16))
    x = torch.randn(4, 5, 32)
    expected = model["layer"](x)
    if sparse_first:
        assert fuse_mlps_(model) == ("layer.1",)
    assert type(model["layer"][1]) is FusedSequential
    assert {name for name in model.state_dict() if "block_" not in name} == names
    with OpLog() as log:
        result = model["layer"](x)
        result.sum().backward()
    assert "acf::block_linear_forward" not in log.names
    torch.testing.assert_close(result, expected)


def test_dropout_behind_the_layers_stays() -> None:
    model = nn.ModuleList([TimmMlp(last_drop=0.5)])
    fuse_mlps_(model)
    dropped = model[0](torch.randn(64, 32))
    assert 0.3 < float((dropped == 0).float().mean()) < 0.7
    assert not (model.eval()[0](torch.randn(64, 32)) == 0).any()


@pytest.mark.parametrize(
    ("mlp", "reason"),
    [
        (Residual(), "its result is another function of these layers"),
        (SiglipMlp(QuickGelu()), "no product takes in the QuickGelu between its layers"),
        (TimmMlp(drop=0.1), "dropout lies between its layers, which no product takes in; set its p to 0"),
    ],
    ids=["residual", "activation", "dropout"],
)
@pytest.mark.parametrize("training", [True, False])
def test_a_module_that_computes_something_else_is_left_alone(mlp: nn.Module, reason: str, training: bool) -> None:
    model = nn.ModuleList([mlp.train(training)])
    with pytest.raises(SparsityError, match=reason):
        fuse_mlps_(model)
    assert model[0] is mlp
    assert mlp.training == training


def test_random_numbers_of_the_run_are_those_without_the_check() -> None:
    torch.manual_seed(5)
    fuse_mlps_(nn.ModuleList([TimmMlp(last_drop=0.5)]).to(torch.float64))
    after = torch.rand(3)
    torch.manual_seed(5)
    nn.ModuleList([TimmMlp(last_drop=0.5)])
    assert torch.equal(after, torch.rand(3))


def test_a_sequence_with_dropout_in_use_is_no_mlp_that_fuses() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 8))
    with pytest.raises(SparsityError, match="no module has these layers"):
        acf.fuse_mlps_(model)
    assert type(model) is nn.Sequential


def test_a_model_that_is_an_mlp_itself() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    assert fuse_mlps_(model) == ("",)
    assert type(model) is FusedSequential
    with pytest.raises(SparsityError, match="the model is itself an MLP, which cannot be replaced in place"):
        fuse_mlps_(TimmMlp())


def test_a_listener_keeps_its_layer() -> None:
    mlp = TimmMlp()
    heard: list[Tensor] = []
    mlp.act.register_forward_hook(lambda layer, inputs, output: heard.append(output))
    with pytest.raises(SparsityError, match="it has hooks, which its successor would lose"):
        fuse_mlps_(nn.ModuleList([mlp]))


def test_sparse_layers_of_bfloat16_parameters_are_compared_layer_by_layer() -> None:
    torch.manual_seed(0)
    model = nn.ModuleList([TimmMlp()])
    sparsify_(model, BlockSparsity(0.5, block=16))
    assert fuse_mlps_(model.to(torch.bfloat16)) == ("0",)


def test_a_result_of_zeros_tells_nothing() -> None:
    mlp = Residual()
    nn.init.zeros_(mlp.fc2.weight)
    with pytest.raises(SparsityError, match="weights of a layer are all zero, so its result does not tell"):
        fuse_mlps_(nn.ModuleList([mlp]))


def test_a_compiled_model_runs_its_mlps_as_one() -> None:
    torch.manual_seed(0)
    model = nn.ModuleList([TimmMlp()])
    sparsify_(model, BlockSparsity(0.5, block=16))
    fuse_mlps_(model)
    x = torch.randn(4, 32)
    compiled = torch.compile(model[0], fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model[0](x))
