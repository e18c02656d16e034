"""Gated pairs of products, and their gradients."""

import pytest
import torch

from acf.ops import reference
from acf.ops.activation import ACTIVATIONS
from acf.ops.triton import gated
from acf.ops.triton.configs import gated_configs, pair_configs
from tests.ops.triton.interpreted import assert_close, fused_or_exact, poisoned, random_topology


@pytest.mark.parametrize(
    ("block", "activation", "with_bias", "dtype"),
    [
        (32, "silu", True, torch.bfloat16),
        (32, "relu", True, torch.float32),
        (64, "gelu_tanh", False, torch.bfloat16),
    ],
)
def test_a_gated_pair_agrees_with_torch(block: int, activation: str, with_bias: bool, dtype: torch.dtype) -> None:
    topologies = random_topology(4, 3, block), random_topology(4, 3, block)
    weights = tuple(
        torch.randn(topology.block_rows.numel(), block, block).to(dtype) / block**0.5 for topology in topologies
    )
    biases = [torch.randn(4 * block) if with_bias else None for _ in weights]
    x = torch.randn(37, 3 * block).to(dtype)
    gate, up = (
        reference.linear(x.double(), weight.double(), topology) + (0.0 if bias is None else bias.double())
        for weight, topology, bias in zip(weights, topologies, biases, strict=True)
    )
    value, slope = ACTIVATIONS[activation](gate)
    for config in fused_or_exact(gated_configs(block, 2), block, dtype):
        for factors in (True, False) if block == 32 else (True,):
            results = [poisoned(*gate.shape, dtype=dtype) for _ in range(3)]
            gated.launch_gated(config, x, weights, biases, results, topologies, (activation, factors))
            assert_close(results[0], value * up, dtype)
            assert results[1].isnan().all() == (not factors)  # nothing is stored that no backward pass will read
            if factors:
                assert_close(results[1], slope * up, dtype)
                assert_close(results[2], value, dtype)


@pytest.mark.parametrize(("block", "dtype"), [(32, torch.float32), (64, torch.bfloat16)])
def test_gradients_of_a_gated_pair_agree_with_the_reference(block: int, dtype: torch.dtype) -> None:
    topologies = random_topology(4, 3, block), random_topology(4, 3, block)
    weights = tuple(torch.randn(each.block_rows.numel(), block, block).to(dtype) for each in topologies)
    gradients = tuple(torch.randn(37, 4 * block).to(dtype) for _ in range(2))
    factors = tuple(torch.randn(37, 3 * block).to(dtype) for _ in range(2))
    inputs = [
        reference.linear_input_grad(gradient.double(), weight.double(), topology)
        for gradient, weight, topology in zip(gradients, weights, topologies, strict=True)
    ]
    for config in fused_or_exact(pair_configs(block, 2), block, dtype):
        out = poisoned(37, 3 * block, dtype=dtype)
        gated.launch_pair_input_grad(config, gradients, weights, out, topologies)
        assert_close(out, inputs[0] + inputs[1], dtype)
        scaled = (torch.empty_like(out), torch.empty_like(out))
        gated.launch_gated_input_grad(config, gradients[0], weights[0], factors, scaled, topologies[0])
        for result, factor in zip(scaled, factors, strict=True):
            assert_close(result, inputs[0] * factor.double(), dtype)


def test_a_gated_pair_that_no_kernel_takes_runs_product_by_product() -> None:
    topology = random_topology(2, 2, 16)
    weight = torch.randn(topology.block_rows.numel(), 16, 16, dtype=torch.float64)
    x = torch.randn(5, 32, dtype=torch.float64)
    results = gated.linear_gated(x, weight, weight, None, None, "silu", True, topology, topology)
    hidden = reference.linear(x, weight, topology)
    torch.testing.assert_close(results[0], torch.nn.functional.silu(hidden) * hidden)
