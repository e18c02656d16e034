"""Convolutions that give batch statistics store the same output, and statistics of what they stored."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from acf.ops import Conv2dGeometry, reference
from acf.ops.triton import conv_statistics
from acf.ops.triton.configs import SEPARATE, conv_statistics_configs
from acf.ops.triton.conv_statistics import Cover
from acf.ops.triton.pixels import ConvProblem
from tests.ops.triton.interpreted import assert_close, distinct, poisoned, random_topology

PADDED = Conv2dGeometry((3, 3), padding=(1, 1))
STRIDED = Conv2dGeometry((3, 3), stride=(2, 2), padding=(1, 1))
STRIDED_POINTWISE = Conv2dGeometry((1, 1), stride=(2, 2))
POINTWISE = Conv2dGeometry((1, 1))


def assert_statistics(mean: Tensor, variance: Tensor, y: Tensor, rtol: float = 1e-5) -> None:
    """``mean`` and ``variance`` are those of ``y [pixels, channels]``, as close as float32 can tell."""
    expected_variance, expected_mean = torch.var_mean(y.double(), dim=0, correction=0)
    torch.testing.assert_close(mean.double(), expected_mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(variance.double(), expected_variance, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize(
    ("block", "geometry", "images", "size", "whole"),
    [
        (32, PADDED, 2, (4, 4), True),
        (32, PADDED, 3, (5, 3), False),
        (64, STRIDED, 2, (6, 6), False),
        (32, STRIDED_POINTWISE, 2, (6, 4), False),
        (64, POINTWISE, 2, (4, 4), True),
    ],
    ids=["whole boxes", "edges", "stride 2", "pointwise of stride 2", "pointwise"],
)
def test_the_kernel_gives_statistics_of_what_it_stores(
    block: int, geometry: Conv2dGeometry, images: int, size: tuple[int, int], whole: bool
) -> None:
    topology = random_topology(3, geometry.taps, block)
    weight = torch.randn(topology.block_rows.numel(), block, block).bfloat16()
    x = torch.randn(images, block, *size).bfloat16().contiguous(memory_format=torch.channels_last)
    bias = 30.0 + torch.randn(3 * block)
    shape = [images, 3 * block, *geometry.output_size(*size)]
    problem = ConvProblem.build(list(x.shape), shape, geometry)
    wide = reference.conv2d(x.double(), weight.double(), topology, geometry, bias.double())
    for config in distinct(conv_statistics_configs(block, 2, "tf32", True)[:-1], block):
        assert Cover.of_output(problem, config.tile).whole == whole
        y = poisoned(shape[0] * shape[2] * shape[3], shape[1], dtype=torch.bfloat16)
        mean, variance = (poisoned(shape[1], dtype=torch.float32) for _ in range(2))
        operands = problem.pixels_of(x), weight, bias
        conv_statistics.launch_conv_statistics(config, operands, (y, mean, variance), topology, problem)
        assert_close(y, problem.pixels_of(wide), torch.bfloat16)
        assert_statistics(mean, variance, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_statistics_are_taken_afterwards_where_no_kernel_takes_them_along(dtype: torch.dtype) -> None:
    geometry, topology = PADDED, random_topology(2, 9, 32)
    assert conv_statistics_configs(32, 4, "tf32", True) == (SEPARATE,)
    assert conv_statistics_configs(32, 2, "tf32", False) == (SEPARATE,)
    weight = torch.randn(topology.block_rows.numel(), 32, 32).to(dtype)
    x = torch.randn(3, 32, 5, 6).to(dtype)
    y, mean, variance = conv_statistics.conv2d_statistics(x, weight, None, *topology, *geometry.as_lists())
    assert_close(y, reference.conv2d(x.double(), weight.double(), topology, geometry), dtype)
    assert y.is_contiguous()
    assert_statistics(mean, variance, ConvProblem.pixels_of(y))


def test_boxes_are_combined_in_several_rounds_without_loss_far_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_statistics, "COMBINED_ROWS", 4)
    pixels = 1000.0 + torch.randn(10 * conv_statistics.PIXEL_TILE + 1, 16)
    pixels[: pixels.shape[0] // 2] += 3.0
    mean, variance = conv_statistics.pixel_statistics(pixels)
    # Float32 holds a mean of 1000 to 6e-5, and a mean of squares to 0.06.
    assert_statistics(mean, variance, pixels, rtol=2e-4)


def test_a_constant_channel_has_no_variance() -> None:
    mean, variance = conv_statistics.pixel_statistics(torch.full((300, 16), 7.0))
    assert torch.equal(mean, torch.full((16,), 7.0))
    assert torch.equal(variance, torch.zeros(16))


def test_boxes_are_counted_along_each_axis() -> None:
    cover = Cover((3, 5, 4), (2, 2, 4))
    assert (cover.counts, cover.boxes, cover.whole) == ((2, 3, 1), 6, False)
    assert replace(cover, extent=(4, 6, 4)).whole


def test_statistics_hold_where_the_first_box_lies_far_from_the_others() -> None:
    pixels = torch.randn(2000, 16)
    pixels[: conv_statistics.PIXEL_TILE] += 1000.0
    assert_statistics(*conv_statistics.pixel_statistics(pixels), pixels, rtol=1e-4)


def test_a_value_that_is_no_number_leaves_no_variance_that_is_one() -> None:
    pixels = torch.randn(300, 16)
    pixels[200, 3] = torch.nan
    mean, variance = conv_statistics.pixel_statistics(pixels)
    assert torch.isnan(mean).nonzero().tolist() == torch.isnan(variance).nonzero().tolist() == [[3]]
