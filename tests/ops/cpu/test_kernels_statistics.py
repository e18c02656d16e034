"""Mean and variance of a convolution's output, taken in the native product."""

import pytest
import torch
from torch import Tensor

from acf.ops import Conv2dGeometry, reference
from acf.ops.cpu import kernels
from acf.sparse import BlockLayout, BlockTopology
from tests.ops.cpu.layers import RELATIVE_ERROR, needs_compiler, random_topology

pytestmark = [needs_compiler, pytest.mark.usefixtures("native_at_any_density")]

PADDED = Conv2dGeometry((3, 3), padding=(1, 1))
STRIDED = Conv2dGeometry((3, 2), stride=(2, 1), padding=(0, 1), dilation=(1, 2))


def convolution(block: int, size: tuple[int, int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor, BlockTopology]:
    """``x`` of a batch and image size, channels last, packed weight and topology: 2 to 3 blocks of channels, 9 taps."""
    generator = torch.Generator().manual_seed(block)
    topology = random_topology(BlockLayout(3 * block, 9 * 2 * block, block, block), 0.3, generator)
    weight = torch.randn(topology.block_rows.numel(), block, block, generator=generator).to(dtype)
    x = torch.randn(size[0], 2 * block, *size[1:], generator=generator).to(dtype)
    return x.to(memory_format=torch.channels_last), weight, topology


def assert_statistics_of(y: Tensor, mean: Tensor, variance: Tensor) -> None:
    expected_mean, expected_variance = reference.channel_statistics(y.double())
    spread = expected_variance.sqrt()
    assert ((mean - expected_mean).abs() <= 1e-5 * spread + 1e-6 * expected_mean.abs()).all()
    torch.testing.assert_close(variance.double(), expected_variance, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("dtype", sorted(RELATIVE_ERROR, key=str))
@pytest.mark.parametrize("block", [8, 16, 32, 64])
def test_statistics_are_those_of_the_stored_output(instruction_set: str, block: int, dtype: torch.dtype) -> None:
    for size in ((1, 1, 2), (2, 5, 3), (3, 40, 33)):
        x, weight, topology = convolution(block, size, dtype)
        bias = torch.linspace(-3.0, 3.0, 3 * block)
        y, *statistics = kernels.block_conv2d_statistics(x, weight, bias, *topology, *PADDED.as_lists())
        assert torch.equal(y, kernels.block_conv2d(x, weight, bias, *topology, *PADDED.as_lists()))
        assert_statistics_of(y, *statistics)


def test_strides_and_many_tiles_are_counted_once() -> None:
    generator = torch.Generator().manual_seed(3)
    topology = random_topology(BlockLayout(64, 6 * 96, 32, 32), 0.4, generator)
    weight = torch.randn(topology.block_rows.numel(), 32, 32, generator=generator)
    x = torch.randn(2, 96, 61, 70, generator=generator).to(memory_format=torch.channels_last)
    y, *statistics = kernels.block_conv2d_statistics(x, weight, None, *topology, *STRIDED.as_lists())
    assert_statistics_of(y, *statistics)


def test_a_channel_far_from_zero_keeps_its_variance() -> None:
    x, weight, topology = convolution(16, (4, 20, 20), torch.float32)
    bias = torch.full((48,), 3e4)
    y, *statistics = kernels.block_conv2d_statistics(x, weight, bias, *topology, *PADDED.as_lists())
    assert_statistics_of(y, *statistics)


def test_a_nan_stays_in_the_statistics_of_its_channel() -> None:
    x, weight, topology = convolution(8, (2, 6, 6), torch.float32)
    bias = torch.zeros(24)
    bias[5] = torch.nan
    _, mean, variance = kernels.block_conv2d_statistics(x, weight, bias, *topology, *PADDED.as_lists())
    assert mean.isnan().nonzero().flatten().tolist() == variance.isnan().nonzero().flatten().tolist() == [5]


def test_images_with_channels_outermost_are_read_again() -> None:
    x, weight, topology = convolution(16, (2, 7, 9), torch.float32)
    y, *statistics = kernels.block_conv2d_statistics(x.contiguous(), weight, None, *topology, *PADDED.as_lists())
    assert y.is_contiguous()
    assert_statistics_of(y, *statistics)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_change_the_statistics(threads: int) -> None:
    x, weight, topology = convolution(32, (1, 64, 64), torch.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        runs = [kernels.block_conv2d_statistics(x, weight, None, *topology, *PADDED.as_lists()) for _ in range(2)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))
    assert_statistics_of(*runs[0])
