"""Activations and scales in the epilogue of a native product."""

import pytest
import torch

from acf.ops import reference
from acf.ops.activation import ACTIVATIONS
from acf.ops.cpu import kernels
from acf.sparse import BlockLayout, BlockTopology
from tests.ops.cpu.layers import RELATIVE_ERROR, assert_close, needs_compiler, random_topology

pytestmark = [needs_compiler, pytest.mark.usefixtures("native_at_any_density")]


@pytest.mark.parametrize("dtype", sorted(RELATIVE_ERROR, key=str))
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_in_the_epilogue_gives_value_and_slope(
    instruction_set: str, activation: str, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    for block, tokens in ((8, 5), (16, 0), (32, 70), (64, 33)):
        layout = BlockLayout(2 * block, 3 * block, block, block)
        topology = random_topology(layout, 0.6, generator)
        weight = torch.randn(topology.block_rows.numel(), block, block, generator=generator).to(dtype)
        x = torch.randn(tokens, 3 * block, generator=generator).to(dtype)
        bias = torch.randn(2 * block, generator=generator)
        value, slope = kernels.block_linear_activation(x, weight, bias, activation, False, *topology)
        hidden = reference.linear(x.double(), weight.double(), topology, bias.double())
        expected_value, expected_slope = ACTIVATIONS[activation](hidden)
        assert value.dtype == slope.dtype == dtype
        assert_close(value, expected_value, dtype)
        if activation != "relu":  # its slope jumps at zero, where sums round to either side
            assert_close(slope, expected_slope, dtype)


ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 2**-8 + 2e-4}
"""Of one value; bfloat16 is rounded from activations that may have 13 bits."""


@pytest.mark.parametrize("dtype", sorted(ROUNDING, key=str))
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_in_the_epilogue_keeps_tails_and_nan(
    instruction_set: str, activation: str, dtype: torch.dtype
) -> None:
    block = 16
    topology = BlockTopology.build(BlockLayout(block, block, block, block), torch.tensor([0]), torch.tensor([0]))
    special = [-1e4, -100.0, -87.5, -20.0, -8.0, -3.0, -1e-3, -0.0, 0.0, 1e-3, 3.0, 8.0, 20.0, 87.5, 100.0, 1e4]
    x = torch.zeros(2, block, dtype=dtype)
    bias = torch.tensor(special)
    x[1, 0] = torch.nan
    weight = torch.zeros(1, block, block, dtype=dtype)
    value, slope = kernels.block_linear_activation(x, weight, bias, activation, False, *topology)
    expected_value, expected_slope = ACTIVATIONS[activation](bias.double())
    torch.testing.assert_close(value[0].double(), expected_value, rtol=ROUNDING[dtype], atol=2e-6)
    torch.testing.assert_close(slope[0].double(), expected_slope, rtol=ROUNDING[dtype], atol=2e-6)
    assert value[1].isnan().all()


@pytest.mark.parametrize("dtype", sorted(RELATIVE_ERROR, key=str))
def test_a_scale_in_the_epilogue_multiplies_the_input_gradient(instruction_set: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    for block, tokens in ((8, 5), (16, 0), (32, 70), (64, 33)):
        layout = BlockLayout(2 * block, 3 * block, block, block)
        topology = random_topology(layout, 0.6, generator)
        weight = torch.randn(topology.block_rows.numel(), block, block, generator=generator).to(dtype)
        output_grad = torch.randn(tokens, 2 * block, generator=generator).to(dtype)
        scale = torch.randn(3 * block, tokens, generator=generator).to(dtype).T  # not contiguous
        actual = kernels.block_linear_scaled_input_grad(output_grad, weight, scale, *topology)
        gradient = reference.linear_input_grad(output_grad.double(), weight.double(), topology)
        assert_close(actual, gradient * scale.double(), dtype)


def test_large_results_of_an_epilogue_are_written_past_the_caches_alike() -> None:
    generator = torch.Generator().manual_seed(2)
    layout = BlockLayout(1024, 64, 32, 32)
    topology = random_topology(layout, 0.2, generator)
    weight = torch.randn(topology.block_rows.numel(), 32, 32, generator=generator)
    x = torch.randn(2100, 64, generator=generator)  # 8.6 MB of results
    value, slope = kernels.block_linear_activation(x, weight, None, "gelu", False, *topology)
    part = [kernels.block_linear_activation(x[:512], weight, None, "gelu", False, *topology)[index] for index in (0, 1)]
    torch.testing.assert_close(value[:512], part[0], rtol=0, atol=0)
    torch.testing.assert_close(slope[:512], part[1], rtol=0, atol=0)
