"""Activations and scales in the epilogue of a product."""

from functools import partial

import numpy as np
import pytest
import torch
import triton.language as tl

from acf.ops import reference
from acf.ops.activation import ACTIVATIONS
from acf.ops.mlp import input_grad_then_scale, linear_then_activation
from acf.ops.triton import mlp
from acf.ops.triton.jit import jit
from acf.ops.triton.mlp_kernels import value_and_slope
from tests.ops.triton.interpreted import assert_close, distinct, poisoned, random_topology


@jit
def activation_probe_kernel(
    x: tl.tensor,
    value: tl.tensor,
    slope: tl.tensor,
    width: tl.constexpr,
    activation: tl.constexpr,
    short: tl.constexpr,
) -> None:
    """The activation of every element and its slope."""
    place = tl.arange(0, width)
    height, rise = value_and_slope(tl.load(x + place), activation, short)
    tl.store(value + place, height)
    tl.store(slope + place, rise)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("block", "with_bias"), [(32, True), (64, False), (128, True)])
def test_a_product_can_leave_gelu_and_slope(block: int, with_bias: bool, dtype: torch.dtype) -> None:
    topology = random_topology(4, 3, block)
    weight = torch.randn(topology.block_rows.numel(), block, block).to(dtype) / block**0.5
    x, bias = torch.randn(37, 3 * block).to(dtype), torch.randn(4 * block).to(dtype)
    hidden = reference.linear(x.double(), weight.double(), topology) + (bias.double() if with_bias else 0.0)
    hidden.requires_grad_()
    expected = torch.nn.functional.gelu(hidden)
    (expected_slope,) = torch.autograd.grad(expected.sum(), hidden)
    for config in distinct(mlp.epilogue_configs(block, 2, "tf32"), block):
        activated, slope = (poisoned(*hidden.shape, dtype=dtype) for _ in range(2))
        shift, results = bias if with_bias else None, (activated, slope)
        mlp.launch_activation(config, x, weight, shift, results, topology, "gelu")
        assert_close(activated, expected.detach(), dtype)
        assert_close(slope, expected_slope, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("block", [32, 64, 128])
def test_an_input_gradient_can_be_scaled_on_its_way_out(block: int, dtype: torch.dtype) -> None:
    topology = random_topology(4, 3, block)
    weight = torch.randn(topology.block_rows.numel(), block, block).to(dtype)
    output_grad, scale = torch.randn(37, 4 * block).to(dtype), torch.randn(37, 3 * block).to(dtype)
    expected = reference.linear_input_grad(output_grad.double(), weight.double(), topology) * scale.double()
    for config in distinct(mlp.epilogue_configs(block, 2, "tf32"), block):
        out = poisoned(*expected.shape, dtype=dtype)
        mlp.launch_scaled(config, output_grad, weight, scale, out, topology)
        assert_close(out, expected, dtype)


@pytest.mark.parametrize(("short", "tolerance"), [(False, 5e-7), (True, 1e-4)])
def test_the_gelu_is_as_exact_as_its_results_are_kept(short: bool, tolerance: float) -> None:
    x = torch.linspace(-9, 9, 4096)
    x[:5] = torch.tensor([float("inf"), -float("inf"), float("nan"), 300.0, -300.0])
    value, slope = torch.empty_like(x), torch.empty_like(x)
    with np.errstate(invalid="ignore", over="ignore"):
        activation_probe_kernel[(1,)](x, value, slope, width=4096, activation="gelu", short=short)
    before = x.double().requires_grad_()
    expected = torch.nn.functional.gelu(before)
    (expected_slope,) = torch.autograd.grad(expected.sum(), before)
    torch.testing.assert_close(value.double(), expected.detach(), rtol=1e-7, atol=tolerance, equal_nan=True)
    torch.testing.assert_close(slope.double(), expected_slope, rtol=1e-7, atol=tolerance, equal_nan=True)
    inside = (before.detach() > -5) & (before.detach() < 0)
    relative = (value.double() / expected.detach() - 1)[inside].abs()
    assert float(relative.max()) < (2e-4 if short else 4e-4)


@pytest.mark.parametrize("activation", ["gelu_tanh", "silu", "relu"])
def test_an_activation_and_its_slope_are_those_of_torch(activation: str) -> None:
    x = torch.linspace(-9, 9, 4096)
    x[:3] = torch.tensor([float("nan"), 80.0, -80.0])
    value, slope = torch.empty_like(x), torch.empty_like(x)
    with np.errstate(invalid="ignore", over="ignore"):
        activation_probe_kernel[(1,)](x, value, slope, width=4096, activation=activation, short=True)
    before = x.double().requires_grad_()
    functions = {
        "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
        "silu": torch.nn.functional.silu,
    }
    expected = functions.get(activation, torch.relu)(before)
    (expected_slope,) = torch.autograd.grad(expected.sum(), before)
    torch.testing.assert_close(value.double(), expected.detach(), rtol=1e-6, atol=1e-6, equal_nan=True)
    torch.testing.assert_close(slope.double(), expected_slope, rtol=1e-6, atol=1e-6, equal_nan=True)
    assert bool((slope[1:] > -0.13).all())
    assert bool((slope[1:] < 1.13).all())


@pytest.mark.parametrize("activation", ["gelu_tanh", "silu", "relu"])
def test_a_product_can_leave_any_activation_and_its_slope(activation: str) -> None:
    topology = random_topology(4, 3, 32)
    weight = torch.randn(topology.block_rows.numel(), 32, 32) / 32**0.5
    x, bias = torch.randn(37, 96), torch.randn(128)
    hidden = reference.linear(x.double(), weight.double(), topology, bias.double())
    results = mlp.linear_activation(x, weight, bias, activation, False, *topology)
    for result, expected in zip(results, ACTIVATIONS[activation](hidden), strict=True):
        assert_close(result, expected, torch.float32)


@pytest.mark.parametrize("block", [16, 20, 64])
def test_the_gelu_of_any_block_size_is_that_of_the_plain_ops(block: int) -> None:
    topology = random_topology(3, 2, block)
    weight, x = torch.randn(topology.block_rows.numel(), block, block), torch.randn(5, 2 * block)
    results = mlp.linear_activation(x, weight, None, "gelu", False, *topology)
    for result, expected in zip(
        results, linear_then_activation(x, weight, None, "gelu", False, *topology), strict=True
    ):
        assert_close(result, expected, torch.float32)
    output_grad, scale = torch.randn(5, 3 * block), torch.randn(5, 2 * block)
    result = mlp.linear_scaled_input_grad(output_grad, weight, scale, *topology)
    assert_close(result, input_grad_then_scale(output_grad, weight, scale, *topology), torch.float32)
