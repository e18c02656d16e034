"""Convolutions, their gradients and their gradient norms agree with the reference."""

import pytest
import torch

from acf.ops import Conv2dGeometry, reference
from acf.ops.triton import conv, norms
from acf.ops.triton.configs import conv_product_configs, conv_weight_grad_configs
from acf.ops.triton.pixels import ConvProblem
from tests.ops.triton.interpreted import assert_close, distinct, poisoned, random_topology

PADDED = Conv2dGeometry((3, 3), (1, 1), (1, 1), (1, 1))
UNEVEN = Conv2dGeometry((3, 2), (2, 1), (1, 0), (1, 2))
POINTWISE = Conv2dGeometry((1, 1), (2, 2))
STRIDED = [Conv2dGeometry((3, 3), (2, 2), (1, 1)), Conv2dGeometry((3, 4), (2, 3), (2, 1), (1, 2))]


def check_convolution(
    block: int, dtype: torch.dtype, geometry: Conv2dGeometry, size: tuple[int, int], input_blocks: int
) -> None:
    """Compare every kernel on two images of ``size`` with ``input_blocks`` blocks of channels."""
    topology = random_topology(3, input_blocks * geometry.taps, block)
    weight = torch.randn(topology.block_rows.numel(), block, block).to(dtype)
    x = torch.randn(2, input_blocks * block, *size).to(dtype).contiguous(memory_format=torch.channels_last)
    output_grad = torch.randn(2, 3 * block, *geometry.output_size(*size)).to(dtype)
    problem = ConvProblem.build(list(x.shape), list(output_grad.shape), geometry)
    source, flat = problem.pixels_of(x), problem.pixels_of(output_grad)
    wide, bias = (output_grad.double(), x.double(), weight.double()), torch.randn(3 * block)
    forward = problem.pixels_of(reference.conv2d(wide[1], wide[2], topology, geometry))
    backward = problem.pixels_of(reference.conv2d_input_grad(wide[0], wide[2], topology, list(x.shape), geometry))
    for number, config in enumerate(distinct(conv_product_configs(block, 2, "tf32", problem.boxed), block)):
        # The first is a descriptor kernel where the stride is 1, a gather kernel elsewhere.
        for added in (None, bias) if number == 0 else (bias,):
            out = poisoned(*flat.shape, dtype=dtype)
            conv.launch_conv_forward(config, source, weight, out, topology, problem, added)
            assert_close(out, forward if added is None else forward + added, dtype)
        out = poisoned(*source.shape, dtype=dtype)
        conv.launch_conv_input_grad(config, flat, weight, out, topology, problem)
        assert_close(out, backward, dtype)
    expected = reference.conv2d_weight_grad(wide[0], wide[1], topology, geometry)
    for config in distinct(conv_weight_grad_configs(block, 2, "tf32", problem.boxed, (1, 2)), block):
        out = poisoned(*weight.shape, dtype=dtype)
        conv.launch_conv_weight_grad(config, flat, source, out, topology, problem)
        assert_close(out, expected, dtype)
    found = expected.square().sum((1, 2)).sqrt()
    for computed in (
        norms.norms_of_list(flat, source, topology.block_rows, topology.block_cols, block, problem),
        norms.norms_of_groups(flat, source, topology.block_rows, topology.block_cols, block, problem),
        norms.conv_norms_by_tiles(flat, source, topology.block_rows, topology.block_cols, block, problem),
    ):
        assert_close(computed, found, dtype)


@pytest.mark.parametrize(
    ("geometry", "input_blocks"),
    [(PADDED, 1), (UNEVEN, 2), (POINTWISE, 2)],
    ids=["padded", "uneven", "pointwise"],
)
@pytest.mark.parametrize(("block", "dtype"), [(16, torch.float32), (32, torch.bfloat16)])
def test_convolutions_agree_with_the_reference(
    block: int, dtype: torch.dtype, geometry: Conv2dGeometry, input_blocks: int
) -> None:
    check_convolution(block, dtype, geometry, (5, 4), input_blocks)


@pytest.mark.parametrize(
    ("geometry", "input_blocks"), list(zip(STRIDED, (2, 1), strict=True)), ids=["3x3", "uneven and dilated"]
)
def test_strided_convolutions_agree_with_the_reference_phase_by_phase(
    geometry: Conv2dGeometry, input_blocks: int
) -> None:
    check_convolution(16, torch.bfloat16, geometry, (8, 6), input_blocks)


def test_convolution_ops_keep_the_memory_format_of_their_input() -> None:
    topology = random_topology(2, 9, 16)
    weight = torch.randn(topology.block_rows.numel(), 16, 16)
    x = torch.randn(2, 16, 5, 4)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        given = x.contiguous(memory_format=memory_format)
        y = conv.conv2d(given, weight, None, *topology, *PADDED.as_lists())
        assert y.is_contiguous(memory_format=memory_format)
        assert_close(y, reference.conv2d(given, weight, topology, PADDED), x.dtype)


def test_a_pointwise_convolution_is_a_linear_layer_over_its_pixels() -> None:
    geometry, topology = Conv2dGeometry((1, 1)), random_topology(3, 2, 16)
    weight, bias = torch.randn(topology.block_rows.numel(), 16, 16), torch.randn(48)
    x, output_grad = torch.randn(2, 32, 5, 4), torch.randn(2, 48, 5, 4)
    pairs = geometry.as_lists()
    y = conv.conv2d(x, weight, bias, *topology, *pairs)
    assert_close(y, reference.conv2d(x, weight, topology, geometry, bias), x.dtype)
    found = conv.conv2d_input_grad(output_grad, weight, *topology, list(x.shape), *pairs)
    assert_close(found, reference.conv2d_input_grad(output_grad, weight, topology, list(x.shape), geometry), x.dtype)
    found = conv.conv2d_weight_grad(output_grad, x, *topology, *pairs, torch.float32)
    assert_close(found, reference.conv2d_weight_grad(output_grad, x, topology, geometry), x.dtype)
