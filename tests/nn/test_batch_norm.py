"""A batch norm with statistics from the convolution before it trains like `torch.nn.BatchNorm2d`."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from acf.nn import BlockSparseConv2d, BlockSparsity, FusedBatchNorm2d, fuse_batch_norms_, sparsify_


@pytest.fixture
def statistics_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions give statistics in training on any device, and norms take them, in eager passes too."""
    monkeypatch.setattr(BlockSparseConv2d, "_gives_statistics", lambda self, x: self.feeds_batch_norm and self.training)
    monkeypatch.setattr(FusedBatchNorm2d, "_is_fused", staticmethod(lambda: True))


def convolution_and_norm(dtype: torch.dtype = torch.float64, **settings: Any) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8, **settings), nn.ReLU())
    if settings.get("affine", True):
        nn.init.normal_(model[1].weight)
        nn.init.normal_(model[1].bias)
    sparsify_(model, BlockSparsity(0.5, block=4))
    return model.to(dtype)


def fused_and_plain(dtype: torch.dtype = torch.float64, **settings: Any) -> tuple[nn.Sequential, nn.Sequential]:
    fused, plain = convolution_and_norm(dtype, **settings), convolution_and_norm(dtype, **settings)
    assert fuse_batch_norms_(fused) == ("1",)
    return fused, plain


def without_plain_batch_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("a fused batch norm read its input for statistics")

    monkeypatch.setattr(nn.functional, "batch_norm", refuse)


def step(model: nn.Sequential, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    model.zero_grad()
    y = model(x)
    (y**2 * torch.linspace(0, 1, y.numel()).view_as(y)).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.01 * parameter.grad
    return torch.cat([y.detach().flatten(), x.grad.flatten()])


@pytest.mark.usefixtures("statistics_everywhere")
@pytest.mark.parametrize(
    "settings",
    [{}, {"momentum": 0.0}, {"affine": False}, {"track_running_stats": False}, {"eps": 0.1}],
    ids=str,
)
def test_three_steps_are_those_of_torchs_batch_norm(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fused, plain = fused_and_plain(**settings)
    batches = [3.0 + torch.randn(5, 4, 6, 6, dtype=torch.float64) for _ in range(3)]
    expected = [step(plain, x) for x in batches]
    with monkeypatch.context() as patched:
        without_plain_batch_norm(patched)
        found = [step(fused, x) for x in batches]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(fused.state_dict(), plain.state_dict())
    torch.testing.assert_close(fused.eval()(batches[0]), plain.eval()(batches[0]))


@pytest.mark.usefixtures("statistics_everywhere")
def test_autocast_gives_what_torchs_batch_norm_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    fused, plain = fused_and_plain(torch.float32)
    x = torch.randn(5, 4, 6, 6)
    with torch.autocast("cpu", torch.bfloat16):
        expected = plain(x)
        without_plain_batch_norm(monkeypatch)
        found = fused(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(fused.state_dict(), plain.state_dict())


def test_layers_run_as_before_on_a_cpu() -> None:
    fused, plain = fused_and_plain(torch.float32)
    x = torch.randn(5, 4, 6, 6)
    assert torch.equal(fused(x), plain(x))
    assert torch.equal(fused[1].running_var, plain[1].running_var)


@pytest.mark.usefixtures("statistics_everywhere")
def test_an_input_that_is_not_the_convolutions_output_is_read_for_its_own_statistics() -> None:
    fused, plain = fused_and_plain()
    x = torch.randn(5, 4, 6, 6, dtype=torch.float64)
    changes = [lambda y: y + 1, lambda y: y.mul_(2.0), lambda y: y.index_copy_(0, torch.tensor([1]), 3 * y[:1])]
    for change in changes:
        found, expected = (model[1](change(model[0](x))) for model in (fused, plain))
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(fused[1].running_mean, plain[1].running_mean)


@pytest.mark.usefixtures("statistics_everywhere")
def test_hooks_may_replace_what_passes_from_the_convolution_to_the_norm() -> None:
    fused, plain = fused_and_plain()
    x = torch.randn(5, 4, 6, 6, dtype=torch.float64)
    for model in (fused, plain):
        model[0].register_forward_hook(lambda module, args, y: y * 2)
        model[1].register_forward_pre_hook(lambda module, args: (args[0].add_(args[0].abs()),))
    torch.testing.assert_close(fused(x), plain(x))


@pytest.mark.usefixtures("statistics_everywhere")
def test_cumulative_averages_are_torchs_own() -> None:
    fused, plain = fused_and_plain(momentum=None)
    batches = [torch.randn(5, 4, 6, 6, dtype=torch.float64) for _ in range(3)]
    torch.testing.assert_close([step(fused, x) for x in batches], [step(plain, x) for x in batches])
    torch.testing.assert_close(fused.state_dict(), plain.state_dict())


@pytest.mark.usefixtures("statistics_everywhere")
def test_a_copy_of_a_fused_model_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    fused, _ = fused_and_plain()
    copied = copy.deepcopy(fused)
    assert list(copied.state_dict()) == list(convolution_and_norm().state_dict())
    without_plain_batch_norm(monkeypatch)
    x = torch.randn(5, 4, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(copied(x), fused(x))


@pytest.mark.usefixtures("statistics_everywhere")
def test_one_value_per_channel_is_refused_as_by_torch() -> None:
    fused, _ = fused_and_plain()
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        fused(torch.randn(1, 4, 2, 2, dtype=torch.float64))


@pytest.mark.usefixtures("statistics_everywhere")
def test_second_derivatives_pass_through_the_norm() -> None:
    x = torch.randn(3, 4, 4, 4, dtype=torch.float64)
    penalties = []
    for model in fused_and_plain():
        weight = model[0].weight
        (gradient,) = torch.autograd.grad((model(x) ** 3).sum(), weight, create_graph=True)
        penalties.append(torch.autograd.grad(gradient.square().sum(), weight)[0])
    torch.testing.assert_close(*penalties)
