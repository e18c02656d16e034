"""Weight gradients, alone and with the gradient of the bias."""

import pytest
import torch

from acf.ops import reference
from acf.ops.triton import product, weight_grad
from acf.ops.triton.configs import weight_grad_configs
from tests.ops.triton.interpreted import BLOCK_SIZES, assert_close, distinct, pairwise, poisoned, random_topology


# Blocks of 16 and 128 have every kind of kernel between them.
@pytest.mark.parametrize(
    ("block", "dtype"),
    [*((block, torch.bfloat16) for block in BLOCK_SIZES), (16, torch.float32), (128, torch.float32)],
)
def test_weight_gradients_agree_with_the_reference(block: int, dtype: torch.dtype) -> None:
    topology = random_topology(3, 2, block)
    x, output_grad = torch.randn(37, 2 * block).to(dtype), torch.randn(37, 3 * block).to(dtype)
    expected = reference.linear_weight_grad(output_grad.double(), x.double(), topology)
    without_bias = set()
    for config in pairwise(distinct(weight_grad_configs(block, 2, "tf32", (1, 2)), block)):
        if config.splits == 1 and (config.kernel, config.by_input) not in without_bias:
            without_bias.add((config.kernel, config.by_input))
            out = poisoned(*expected.shape, dtype=dtype)
            weight_grad.launch_weight_grad(config, output_grad, x, out, topology)
            assert_close(out, expected, dtype)
        out, bias = poisoned(*expected.shape, dtype=dtype), poisoned(3 * block, dtype=torch.float32)
        weight_grad.launch_weight_grad(config, output_grad, x, out, topology, bias)
        assert_close(out, expected, dtype)
        assert_close(bias, output_grad.double().sum(0), torch.float32)


@pytest.mark.parametrize("bias_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_ops_add_a_bias_of_any_dtype_and_leave_its_gradient(bias_dtype: torch.dtype) -> None:
    topology = random_topology(4, 3, 16)
    weight = torch.randn(topology.block_rows.numel(), 16, 16).bfloat16()
    x, output_grad = torch.randn(37, 48).bfloat16(), torch.randn(37, 64).bfloat16()
    bias = torch.randn(64).to(bias_dtype)
    for _ in range(2):  # a first and a known problem
        y = product.linear(x, weight, bias, *topology)
        expected = reference.linear(x.double(), weight.double(), topology, bias.double())
        assert_close(y, expected, x.dtype)
        gradient, sums = weight_grad.linear_weight_and_bias_grad(output_grad, x, *topology, x.dtype, bias_dtype)
        assert_close(gradient, reference.linear_weight_grad(output_grad.double(), x.double(), topology), x.dtype)
        assert (gradient.dtype, sums.dtype) == (x.dtype, bias_dtype)
        exact = weight_grad.linear_weight_grad(output_grad, x, *topology, torch.float32)
        assert exact.dtype == torch.float32
        wide = reference.linear_weight_grad(output_grad.double(), x.double(), topology)
        assert_close(exact, wide, torch.float32)
        assert_close(sums, output_grad.double().sum(0), bias_dtype)


@pytest.mark.parametrize("splits", [2, 5, 40])
def test_parts_are_summed_whether_they_fill_a_group_or_several(splits: int) -> None:
    parts, out = torch.randn(splits, 300, 7), torch.empty(300, 7)
    weight_grad.add_splits(parts, out)
    torch.testing.assert_close(out, parts.sum(0), rtol=1e-5, atol=1e-5)
