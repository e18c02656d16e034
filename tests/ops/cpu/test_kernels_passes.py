"""The native passes and gradient norms of any layer agree with the float64 reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acf.ops import block_linear, reference
from acf.ops.cpu import kernels
from acf.ops.linear import block_linear_forward, block_linear_input_grad
from tests.ops.cpu.agreement import CONV2D_LAYERS, LINEAR_LAYERS, check_conv2d, check_linear
from tests.ops.cpu.layers import RELATIVE_ERROR, assert_close, layer, needs_compiler

pytestmark = [needs_compiler, pytest.mark.usefixtures("native_at_any_density")]

few_examples = settings(max_examples=60, deadline=None, derandomize=True)
dtypes = st.sampled_from(sorted(RELATIVE_ERROR, key=str))
blocks = st.sampled_from(kernels.NATIVE_BLOCKS)


def test_linear_passes_and_norms_agree_with_float64(instruction_set: str) -> None:
    few_examples(given(block=blocks, dtype=dtypes, **LINEAR_LAYERS)(check_linear))()


def test_conv2d_passes_and_norms_agree_with_float64(instruction_set: str) -> None:
    few_examples(given(block=blocks, dtype=dtypes, **CONV2D_LAYERS)(check_conv2d))()


def test_results_larger_than_the_caches_are_right(instruction_set: str) -> None:
    # 2200 x 1024 floats exceed PAST_CACHES_BYTES, where stores take another path.
    x, output_grad, weight, topology = layer(tokens=2200, block=32, grid=(32, 32), density=0.1)
    assert_close(
        block_linear_forward(x, weight, None, *topology),
        reference.linear(x.double(), weight.double(), topology),
        torch.float32,
    )
    assert_close(
        block_linear_input_grad(output_grad, weight, *topology),
        reference.linear_input_grad(output_grad.double(), weight.double(), topology),
        torch.float32,
    )


def test_gradients_flow_through_the_native_kernels() -> None:
    x, _, weight, topology = layer(tokens=10)
    x.requires_grad_()
    weight.requires_grad_()
    block_linear(x, weight, topology).square().sum().backward()
    x64 = x.detach().double().requires_grad_()
    weight64 = weight.detach().double().requires_grad_()
    reference.linear(x64, weight64, topology).square().sum().backward()
    for actual, expected in ((x, x64), (weight, weight64)):
        assert actual.grad is not None
        assert expected.grad is not None
        assert_close(actual.grad, expected.grad, torch.float32)


def test_opcheck_passes_for_every_op() -> None:
    x, output_grad, weight, topology = layer(tokens=10)
    x.requires_grad_()
    weight.requires_grad_()
    torch.library.opcheck(torch.ops.acf.block_linear.default, (x, weight, None, *topology))
    torch.library.opcheck(torch.ops.acf.block_linear_input_grad.default, (output_grad, weight.detach(), *topology))
    torch.library.opcheck(torch.ops.acf.block_linear_weight_grad.default, (output_grad, x.detach(), *topology, x.dtype))
    images = torch.randn(2, 64, 5, 6, requires_grad=True)
    pairs = ([1, 1], [1, 1], [0, 0], [1, 1])
    torch.library.opcheck(torch.ops.acf.block_conv2d.default, (images, weight, None, *topology, *pairs))
