"""NaN, infinities, ties in rounding and subnormal numbers in the native kernels."""

import pytest
import torch

from acf.ops import Conv2dGeometry, reference
from acf.ops.conv import block_conv2d_weight_grad
from acf.ops.cpu import call
from acf.ops.linear import block_linear_forward, block_linear_input_grad, block_linear_weight_grad
from acf.sparse import BlockLayout, BlockTopology
from tests.ops.cpu.layers import layer, needs_compiler, random_topology

pytestmark = [needs_compiler, pytest.mark.usefixtures("native_at_any_density")]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nan_and_inf_pass_through_present_blocks_as_in_dense(
    value: float, dtype: torch.dtype, instruction_set: str
) -> None:
    x, output_grad, weight, topology = layer(density=1.0)
    x, output_grad, weight = x.to(dtype), output_grad.to(dtype), weight.to(dtype)
    x[5, 3] = output_grad[7, 9] = weight[2, 1, 4] = value
    for actual, expected in (
        (block_linear_forward(x, weight, None, *topology), reference.linear(x.float(), weight.float(), topology)),
        (
            block_linear_input_grad(output_grad, weight, *topology),
            reference.linear_input_grad(output_grad.float(), weight.float(), topology),
        ),
        (
            block_linear_weight_grad(output_grad, x, *topology, x.dtype),
            reference.linear_weight_grad(output_grad.float(), x.float(), topology),
        ),
    ):
        assert torch.equal(actual.isnan(), expected.isnan())
        assert torch.equal(actual.isposinf(), expected.isposinf())
        assert torch.equal(actual.isneginf(), expected.isneginf())


def test_bfloat16_rounds_to_nearest_even(instruction_set: str) -> None:
    layout = BlockLayout(16, 16, 16, 16)
    topology = BlockTopology.from_mask(layout, torch.ones(1, 1, dtype=torch.bool))
    x = torch.zeros(4, 16, dtype=torch.bfloat16)
    # Ties above an even and an odd bfloat16, and one just past a tie.
    x[:, 0] = torch.tensor([1.0, 1.0 + 2**-7, 1.0, -1.0])
    x[:, 1] = torch.tensor([2**-8, 2**-8, 2**-8 + 2**-15, -(2**-8)])
    weight = torch.zeros(1, 16, 16, dtype=torch.bfloat16)
    weight[0, 0, :2] = 1.0
    expected = (x[:, 0].float() + x[:, 1].float()).to(torch.bfloat16)
    assert torch.equal(block_linear_forward(x, weight, None, *topology)[:, 0], expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_nan_and_inf_of_one_image_stay_out_of_the_other_of_its_pair(
    value: float, batch: int, instruction_set: str
) -> None:
    generator = torch.Generator().manual_seed(5)
    geometry = Conv2dGeometry((3, 3), (1, 1), (1, 1))
    topology = random_topology(BlockLayout(16, 9 * 16, 16, 16), 1.0, generator)
    x = torch.randn(batch, 16, 5, 6, generator=generator).bfloat16()
    output_grad = torch.randn(batch, 16, 5, 6, generator=generator).bfloat16()
    x[-1, 3, 0, 5] = value
    output_grad[-1, :, :2, 4:] = 0  # dense gradients are zero there but for 0 x Inf
    actual = block_conv2d_weight_grad(output_grad, x, *topology, *geometry.as_lists(), x.dtype)
    expected = reference.conv2d_weight_grad(output_grad.float(), x.float(), topology, geometry)
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual.isinf(), expected.isinf())


@pytest.mark.usefixtures("bfloat16_pairs")
def test_pairs_of_bfloat16_take_numbers_below_the_normal_ones_for_zero() -> None:
    layout = BlockLayout(16, 16, 16, 16)
    topology = BlockTopology.from_mask(layout, torch.ones(1, 1, dtype=torch.bool))
    x, weight = torch.zeros(1, 16, dtype=torch.bfloat16), torch.zeros(1, 16, 16, dtype=torch.bfloat16)
    x[0, 0], weight[0, 0, 0] = 2.0**-70, 2.0**-60
    assert block_linear_forward(x, weight, None, *topology)[0, 0] == 0
    with call.with_instruction_set("avx512"):
        assert block_linear_forward(x, weight, None, *topology)[0, 0] == 2.0**-130


@pytest.mark.usefixtures("bfloat16_pairs")
def test_float32_layers_have_the_same_bits_with_and_without_products_of_pairs() -> None:
    x, output_grad, weight, topology = layer()
    results = (
        block_linear_forward(x, weight, None, *topology),
        block_linear_weight_grad(output_grad, x, *topology, x.dtype),
    )
    with call.with_instruction_set("avx512"):
        assert torch.equal(results[0], block_linear_forward(x, weight, None, *topology))
        assert torch.equal(results[1], block_linear_weight_grad(output_grad, x, *topology, x.dtype))
