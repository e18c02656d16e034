"""The rules on synthetic gradients: DTS step by step, how closely each tracks its target, and where rivals miss."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acf.gradients import RULES, GradientSparsifier, GradientSparsity


class Layer:
    """One sparsifier, fed with gradients of our own making."""

    def __init__(self, **spec):
        self.sparsifier = GradientSparsifier(GradientSparsity(**spec))

    def send(self, gradient: torch.Tensor) -> torch.Tensor:
        """What arrives at the layer when ``gradient`` is sent to its output."""
        activation = torch.zeros(gradient.shape, dtype=gradient.dtype, requires_grad=True)
        self.sparsifier(activation * 1.0).backward(gradient)
        return activation.grad

    @property
    def threshold(self) -> float:
        return self.sparsifier.threshold.item()

    @property
    def sparsity(self) -> float:
        return self.sparsifier.sparsity.item()


def zero_share(gradient: torch.Tensor) -> float:
    return (gradient == 0).double().mean().item()


# Gradients of many layers are like this: most of the mass near zero, few large values.
def heavy_tailed(size: int = 20_000) -> torch.Tensor:
    return torch.randn(size) * torch.randn(size).exp() ** 1.5


def test_dts_follows_the_published_steps_exactly():
    layer = Layer(target=0.5)
    gradient = torch.tensor([0.001, -0.004, 0.02, -0.1, 0.3, -0.5, 0.7, 1.0])
    assert layer.threshold == 0.0
    assert torch.equal(layer.send(gradient), gradient)  # theta_1 = 0 drops nothing
    assert layer.threshold == pytest.approx(1.0 / 100, rel=1e-6)  # theta_2 = max / 100
    sent = layer.send(gradient)
    assert sent.tolist() == [0.0, 0.0, *gradient[2:].tolist()]
    assert layer.sparsity == 0.25
    assert layer.threshold == pytest.approx(0.01 * 1.2, rel=1e-6)  # 0.5 / 0.25 = 2, held to +20 %


@pytest.mark.parametrize(
    ("share_below", "factor"),
    [(0.0, 1.2), (0.25, 1.2), (0.45, 0.5 / 0.45), (0.5, 1.0), (0.55, 0.5 / 0.55), (0.9, 0.8), (0.99, 0.8)],
)
def test_dts_scales_by_target_over_sparsity_within_twenty_percent(share_below, factor):
    layer = Layer(target=0.5)
    layer.sparsifier.threshold.fill_(1e-3)
    gradient = torch.ones(100)
    gradient[: round(100 * share_below)] = 1e-4
    layer.send(gradient)
    assert layer.sparsity == pytest.approx(share_below)
    assert layer.threshold == pytest.approx(1e-3 * factor, rel=1e-5)


@pytest.mark.parametrize("target", [0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("make", [heavy_tailed, lambda: torch.randn(20_000), lambda: torch.rand(20_000)])
def test_dts_holds_the_target_within_two_points_on_stationary_gradients(target, make):
    layer = Layer(target=target)
    for step in range(200):
        sent = layer.send(make())
        if step >= 120:
            assert abs(zero_share(sent) - target) < 0.02
    assert layer.sparsity == pytest.approx(zero_share(sent), abs=1e-6)


def test_the_gaussian_threshold_misses_by_more_than_ten_points_where_gradients_are_not_gaussian():
    gaussian, dts = Layer(target=0.5, method="gaussian"), Layer(target=0.5)
    for _ in range(150):
        gradient = heavy_tailed()
        gaussian.send(gradient)
        dts.send(gradient)
    assert abs(gaussian.sparsity - 0.5) > 0.10
    assert abs(dts.sparsity - 0.5) < 0.02


@pytest.mark.parametrize(("target", "deviations"), [(0.5, 0.67449), (0.7, 1.03643)])
def test_the_gaussian_threshold_is_mean_plus_the_normal_quantile_of_the_step_before(target, deviations):
    layer = Layer(target=target, method="gaussian")
    gradient = torch.randn(20_000) * 0.1 + 0.002
    assert torch.equal(layer.send(gradient), gradient)
    expected = gradient.mean() + deviations * gradient.std(correction=0)
    assert layer.threshold == pytest.approx(expected.item(), rel=1e-4)
    assert abs(zero_share(layer.send(gradient)) - target) < 0.01


def test_a_static_threshold_drifts_when_gradients_shrink_and_dts_does_not():
    static, dts = Layer(target=0.5, method="static"), Layer(target=0.5)
    for step in range(300):
        gradient = heavy_tailed(5_000) * 0.98**step  # as a falling loss does, a factor of 400 in all
        static.send(gradient)
        dts.send(gradient)
        if step == 1:
            assert abs(static.sparsity - 0.5) < 0.02
    assert static.sparsity > 0.9
    assert abs(dts.sparsity - 0.5) < 0.03


def test_a_static_threshold_that_is_given_holds_from_the_first_step():
    layer = Layer(method="static", threshold=0.5)
    for _ in range(2):
        assert layer.send(torch.tensor([0.4, -0.6, -0.4, 0.6])).tolist() == pytest.approx([0.0, -0.6, 0.0, 0.6])
        assert layer.threshold == 0.5


@given(st.integers(1, 60), st.floats(0.01, 0.99), st.integers(0, 100))
def test_top_k_keeps_the_greatest_elements_of_this_gradient(size, target, seed):
    gradient = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    sent = Layer(target=target, method="top-k").send(gradient)
    dropped = int(target * size)
    expected = set(gradient.abs().sort().indices[dropped:].tolist())
    assert set(sent.nonzero().flatten().tolist()) == expected
    assert torch.equal(sent[sent != 0], gradient[sent != 0])


def test_random_drops_reach_the_target_whatever_zeros_are_there_already():
    layer = Layer(target=0.5, method="random")
    dense = torch.randn(20_000)
    assert abs(zero_share(layer.send(dense)) - 0.5) < 0.02
    assert abs(zero_share(layer.send(dense.masked_fill(torch.rand(20_000) < 0.3, 0.0))) - 0.5) < 0.02
    half_and_more = dense.masked_fill(torch.rand(20_000) < 0.6, 0.0)
    assert torch.equal(layer.send(half_and_more), half_and_more)


def test_random_drops_differ_by_step_and_seed_and_repeat_with_both():
    gradient = torch.randn(1000)
    first, second = Layer(method="random", seed=1), Layer(method="random", seed=1)
    sent = first.send(gradient)
    assert torch.equal(second.send(gradient), sent)
    assert not torch.equal(first.send(gradient), sent)
    assert not torch.equal(Layer(method="random", seed=2).send(gradient), sent)


@pytest.mark.parametrize("method", RULES)
def test_what_stays_is_unchanged_and_what_goes_is_zero(method):
    layer = Layer(target=0.5, method=method)
    for _ in range(30):
        gradient = heavy_tailed(1000)
        sent = layer.send(gradient)
        assert torch.equal(sent, torch.where(sent == 0, 0.0, gradient))
    assert 0.2 < zero_share(sent) < 0.95


@pytest.mark.parametrize("method", RULES)
@pytest.mark.parametrize("spoiled", [math.inf, -math.inf, math.nan])
def test_an_overflow_reaches_the_loss_scaler_and_teaches_nothing(method, spoiled):
    layer = Layer(target=0.5, method=method)
    for _ in range(3):
        layer.send(heavy_tailed(100))
    before = [buffer.clone() for buffer in layer.sparsifier.buffers()]
    gradient = heavy_tailed(100)
    gradient[::2] = spoiled
    if method != "random":
        assert not layer.send(gradient).isfinite().all()
    else:
        layer.send(gradient)
    assert all(map(torch.equal, layer.sparsifier.buffers(), before))


@pytest.mark.parametrize("method", RULES)
@pytest.mark.parametrize("shape", [(10,), (0, 3)])
def test_a_gradient_without_content_teaches_nothing(method, shape):
    layer = Layer(target=0.5, method=method)
    assert layer.send(torch.zeros(shape)).shape == shape
    assert layer.sparsifier.step.item() == 0
    assert layer.threshold == 0.0


def test_dts_recovers_from_a_long_time_with_more_natural_zeros_than_asked():
    layer = Layer(target=0.5)
    mostly_zero = torch.zeros(1000)
    mostly_zero[::10] = 1.0
    for _ in range(600):
        layer.send(mostly_zero)
    assert layer.threshold > 0.0
    for _ in range(600):
        sent = layer.send(torch.rand(10_000))
    assert abs(zero_share(sent) - 0.5) < 0.02


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", RULES)
def test_low_precision_gradients_keep_their_type_and_reach_the_target(method, dtype):
    layer = Layer(target=0.5, method=method)
    for _ in range(60):
        sent = layer.send(torch.randn(4000).to(dtype))
    assert sent.dtype is dtype
    assert abs(zero_share(sent) - 0.5) < 0.05
    assert layer.sparsifier.threshold.dtype is torch.float32
