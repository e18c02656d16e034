"""A fused sequence is a sequence: same result, same names, same checkpoints, whatever is in it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import acf
from acf.nn import BlockSparsity, FusedSequential, sparsify_
from acf.train import TopologyController


def layers() -> list[nn.Module]:
    return [nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 16)]


def pair() -> tuple[FusedSequential, nn.Sequential]:
    """The same sparse layers in a fused and in a plain sequence."""
    fused, plain = FusedSequential(*layers()), nn.Sequential(*layers())
    plain.load_state_dict(fused.state_dict())
    for model in (fused, plain):
        sparsify_(model, BlockSparsity(0.5, block=16))
    return fused, plain


@pytest.fixture
def on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fuse whatever the device, the blocks and the dtype."""
    monkeypatch.setattr("acf.nn.fused._pays", lambda x, mlp: True)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The inputs of the fused function, as it is called."""
    seen: list[torch.Size] = []
    whole = acf.ops.block_mlp

    def listening(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        seen.append(x.shape)
        return whole(x, *rest)

    monkeypatch.setattr("acf.nn.fused.block_mlp", listening)
    return seen


@pytest.mark.usefixtures("on_any_device")
def test_result_and_gradients_are_those_of_a_plain_sequence(calls: list[torch.Size]) -> None:
    fused, plain = pair()
    x = torch.randn(3, 5, 32)
    for model in (fused, plain):
        model(x).square().sum().backward()
    assert calls == [(3, 5, 32)]
    torch.testing.assert_close(fused(x), plain(x))
    for (name, ours), theirs in zip(fused.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=name)


@pytest.mark.usefixtures("on_any_device")
@pytest.mark.parametrize("activation", [nn.GELU(approximate="tanh"), nn.SiLU(), nn.ReLU()], ids=str)
def test_other_common_activations_run_within_the_products_too(calls: list[torch.Size], activation: nn.Module) -> None:
    fused, plain = pair()
    fused[2] = plain[2] = activation
    x = torch.randn(4, 32)
    torch.testing.assert_close(fused(x), plain(x))
    assert calls == [(4, 32)]


@pytest.mark.usefixtures("on_any_device")
@pytest.mark.parametrize(
    "change",
    [
        lambda model: model[1].register_forward_hook(lambda *_: None),
        lambda model: model[2].register_forward_pre_hook(lambda *_: None),
        lambda model: model[3].register_full_backward_hook(lambda *_: None),
        lambda model: model.__setitem__(2, nn.Mish()),
        lambda model: sparsify_(model, acf.GradientSparsity(0.5)),
        acf.densify_,
    ],
    ids=["hook", "pre-hook", "backward hook", "another activation", "gradient sparsity", "dense"],
)
def test_layers_that_someone_listens_to_or_that_differ_run_one_by_one(
    calls: list[torch.Size], change: Callable[[nn.Module], object]
) -> None:
    fused, _ = pair()
    change(fused)
    fused(torch.randn(4, 32)).sum().backward()
    assert calls == []


@pytest.mark.parametrize(("dtype", "runs_as_one"), [(torch.float32, True), (torch.float64, False)])
def test_on_a_cpu_layers_run_as_one_in_the_dtypes_of_its_kernels(
    calls: list[torch.Size], dtype: torch.dtype, runs_as_one: bool
) -> None:
    fused, plain = (model.to(dtype) for model in pair())
    x = torch.randn(4, 32, dtype=dtype)
    torch.testing.assert_close(fused(x), plain(x))
    assert calls == ([(4, 32)] if runs_as_one else [])


def test_on_a_cpu_layers_with_other_blocks_run_one_by_one(calls: list[torch.Size]) -> None:
    fused = FusedSequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))
    sparsify_(fused, BlockSparsity(0.5, block=4))
    fused(torch.randn(4, 12))
    assert calls == []


@pytest.mark.usefixtures("on_any_device")
def test_autocast_computes_in_the_lower_precision_and_keeps_gradients_in_the_higher() -> None:
    fused, plain = pair()
    x = torch.randn(4, 32)
    with torch.autocast("cpu", torch.bfloat16):
        y, expected = fused(x), plain(x)
    assert y.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=0.02, atol=0.02)
    y.float().sum().backward()
    assert {parameter.grad.dtype for parameter in fused.parameters()} == {torch.float32}


@pytest.mark.usefixtures("on_any_device")
def test_blocks_move_by_the_same_scores_as_in_a_plain_sequence() -> None:
    policy = acf.BlockDST(total_steps=8, every=2, stop_at=1.0)
    torch.manual_seed(0)
    models = pair()
    data = [torch.randn(16, 32) for _ in range(8)]
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        controller: TopologyController = acf.attach(model, optimizer, policy)
        for x in data:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        controller.detach()
    for ours, theirs in zip(*(model.state_dict().items() for model in models), strict=True):
        torch.testing.assert_close(ours[1], theirs[1], msg=ours[0])


@pytest.mark.usefixtures("on_any_device")
def test_a_compiler_takes_it_whole() -> None:
    fused, _ = pair()
    x = torch.randn(4, 32)
    torch.testing.assert_close(torch.compile(fused, fullgraph=True, backend="aot_eager")(x), fused(x))
