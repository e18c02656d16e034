"""A gated MLP gives the same result, names and checkpoints whether its layers run as one or one by one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acf
from acf.nn import BlockSparsity, GatedMLP, sparsify_


class Model(nn.Module):
    """One gated MLP, fused or as plain torch."""

    def __init__(self, fuses: bool, activation: nn.Module | None = None, bias: bool = True) -> None:
        super().__init__()
        self.mlp, self.fuses = GatedMLP(32, 64, activation, bias), fuses

    def forward(self, x: Tensor) -> Tensor:
        mlp = self.mlp
        return mlp(x) if self.fuses else mlp.down_proj(mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x))


def pair(activation: nn.Module | None = None, bias: bool = True) -> tuple[Model, Model]:
    """The same sparse layers, fused and plain."""
    torch.manual_seed(0)
    fused, plain = Model(True, activation, bias), Model(False, activation, bias)
    plain.load_state_dict(fused.state_dict())
    for model in (fused, plain):
        sparsify_(model, BlockSparsity(0.5, block=16))
    return fused, plain


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The inputs of the fused function, as it is called."""
    seen: list[torch.Size] = []
    whole = acf.ops.block_gated_mlp

    def listening(x: Tensor, *rest: Any) -> Tensor:
        seen.append(x.shape)
        return whole(x, *rest)

    monkeypatch.setattr("acf.nn.gated.block_gated_mlp", listening)
    return seen


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [nn.SiLU(), nn.GELU(), nn.GELU("tanh"), nn.ReLU()], ids=str)
def test_result_and_gradients_are_those_of_plain_torch(
    calls: list[torch.Size], activation: nn.Module, bias: bool
) -> None:
    fused, plain = pair(activation, bias)
    x = torch.randn(3, 5, 32)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    for model, own in zip((fused, plain), inputs, strict=True):
        model(own).square().sum().backward()
    assert calls == [(3, 5, 32)]
    torch.testing.assert_close(fused(x), plain(x))
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    for (name, ours), theirs in zip(fused.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda mlp: mlp.up_proj.register_forward_hook(lambda *_: None), "up_proj has a forward or backward hook"),
        (lambda mlp: setattr(mlp, "act_fn", nn.Mish()), "no product takes in the activation Mish"),
        (lambda mlp: setattr(mlp, "up_proj", nn.Linear(32, 64)), "up_proj is a Linear, not a BlockSparseLinear"),
        (lambda mlp: mlp.double(), "no fused product computes in torch.float64 on cpu"),
    ],
    ids=["hook", "activation", "dense", "dtype"],
)
def test_what_cannot_be_fused_runs_one_by_one_and_says_why(
    calls: list[torch.Size], change: Callable[[GatedMLP], object], reason: str
) -> None:
    fused, _ = pair()
    change(fused.mlp)
    x = torch.randn(4, 32, dtype=fused.mlp.gate_proj.weight.dtype)
    fused(x).sum().backward()
    assert calls == []
    assert fused.mlp.why_separate(x).startswith(reason)


def test_layers_that_do_not_fit_each_other_are_refused_as_by_torch() -> None:
    model = nn.Sequential(GatedMLP.of(nn.Linear(32, 64), nn.Linear(32, 32), nn.Linear(64, 32), nn.SiLU()))
    sparsify_(model, BlockSparsity(0.5, block=16))
    with pytest.raises(RuntimeError, match="must match the size"):
        model(torch.randn(4, 32))


def test_blocks_without_a_kernel_run_one_by_one(calls: list[torch.Size]) -> None:
    model = Model(True)
    sparsify_(model, BlockSparsity(0.5, block=4))
    model(torch.randn(4, 32))
    assert calls == []
    assert model.mlp.why_separate(torch.randn(4, 32)) == "no fused product has blocks of [(4, 4)] on cpu"


def test_autocast_computes_in_the_lower_precision_and_keeps_gradients_in_the_higher(calls: list[torch.Size]) -> None:
    fused, plain = pair()
    x = torch.randn(4, 32)
    with torch.autocast("cpu", torch.bfloat16):
        y, expected = fused(x), plain(x)
    assert calls == [(4, 32)]
    assert y.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=0.02, atol=0.02)
    y.float().sum().backward()
    assert {parameter.grad.dtype for parameter in fused.parameters()} == {torch.float32}


def test_blocks_move_by_the_same_scores_as_layer_by_layer() -> None:
    policy = acf.BlockDST(total_steps=8, every=2, stop_at=1.0)
    models = pair()
    data = [torch.randn(16, 32) for _ in range(8)]
    before = models[0].mlp.gate_proj.mask()
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        controller = acf.attach(model, optimizer, policy)
        for x in data:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        controller.detach()
    assert not torch.equal(before, models[0].mlp.gate_proj.mask())
    for ours, theirs in zip(*(model.state_dict().items() for model in models), strict=True):
        torch.testing.assert_close(ours[1], theirs[1], msg=ours[0])


def test_a_compiler_takes_it_whole() -> None:
    fused, _ = pair()
    x = torch.randn(4, 32)
    torch.testing.assert_close(torch.compile(fused, fullgraph=True, backend="aot_eager")(x), fused(x))
