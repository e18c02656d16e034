"""The passes in tile registers (AMX), here or in software: layers of many tiles, pieces, segments and threads.

Compiled in software, every pass begins with working memory full of NaN: one that uses what it has not written fails.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acf.ops import Conv2dGeometry, reference
from acf.ops.conv import block_conv2d_weight_grad
from acf.ops.cpu import kernels
from acf.ops.linear import block_linear_weight_grad
from acf.sparse import BlockLayout
from tests.ops.cpu.agreement import CONV2D_LAYERS, LINEAR_LAYERS, check_conv2d, check_linear
from tests.ops.cpu.conftest import SOFTWARE
from tests.ops.cpu.layers import assert_close, needs_compiler, random_topology

pytestmark = [
    needs_compiler,
    pytest.mark.usefixtures("native_at_any_density", "instruction_set"),
    pytest.mark.parametrize("instruction_set", ["amx", *SOFTWARE], indirect=True),
]

few_examples = settings(max_examples=60, deadline=None, derandomize=True)
blocks = st.sampled_from((16, 32, 64))
threads = st.integers(1, 3)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_linear_passes_agree_with_float64_in_any_number_of_threads() -> None:
    def check(threads: int, **layer: Any) -> None:
        with torch_threads(threads):
            check_linear(dtype=torch.bfloat16, **layer)

    few_examples(given(threads=threads, block=blocks, **LINEAR_LAYERS)(check))()


def test_conv2d_passes_agree_with_float64_in_any_number_of_threads() -> None:
    def check(threads: int, **layer: Any) -> None:
        with torch_threads(threads):
            check_conv2d(dtype=torch.bfloat16, **layer)

    few_examples(given(threads=threads, block=blocks, **CONV2D_LAYERS)(check))()


@pytest.mark.parametrize("block", [16, 32, 64])
def test_many_tokens_make_several_segments(block: int) -> None:
    layer = {"seed": block, "tokens": 1100, "grid": (3, 4), "density": 0.5, "transposed": block == 32}
    for count in (1, 2, 3):
        with torch_threads(count):
            check_linear(block=block, dtype=torch.bfloat16, **layer)


@pytest.mark.parametrize(
    "image",
    [
        # Wide, narrow (16 pixels reach over several rows) and just over 16 columns; each several tiles high.
        {"size": (61, 70), "batch": 2, "stride": (1, 1)},
        {"size": (130, 9), "batch": 3, "stride": (1, 1)},
        {"size": (300, 5), "batch": 1, "stride": (1, 1)},
        {"size": (90, 17), "batch": 2, "stride": (1, 1)},
        {"size": (61, 70), "batch": 1, "stride": (2, 3)},
        {"size": (150, 9), "batch": 2, "stride": (1, 2)},
        {"size": (150, 9), "batch": 3, "stride": (2, 1)},
    ],
    ids=lambda image: "x".join(map(str, (*image["size"], *image["stride"]))),
)
@pytest.mark.parametrize("block", [16, 32, 64])
def test_images_of_several_tiles_agree_with_float64(image: dict[str, Any], block: int) -> None:
    padded = {"kernel": (3, 3), "padding": (1, 1), "dilation": (1, 1)}
    dilated = {"kernel": (2, 3), "padding": (0, 2), "dilation": (3, 2)}
    geometry = dilated if block == 32 else padded
    with torch_threads(2):
        check_conv2d(
            seed=block,
            block=block,
            dtype=torch.bfloat16,
            density=0.05,
            channels_last=block != 32,
            **image,
            **geometry,
        )


@pytest.mark.parametrize("kernel", [(3, 3), (1, 2)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 2), (2, 1)])
@pytest.mark.parametrize(("block", "size"), [(32, (5, 6)), (32, (9, 20)), (64, (12, 7)), (32, (300, 9))])
def test_an_infinite_pixel_stays_out_of_the_gradients_of_taps_that_do_not_read_it(
    block: int, size: tuple[int, int], stride: tuple[int, int], kernel: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(5)
    for padding, place in ((0, (0, -1)), (0, (-1, -1)), (kernel[0] // 2, (1, 0)), (kernel[0] // 2, (3, 4))):
        geometry = Conv2dGeometry(kernel, stride, (padding, padding))
        topology = random_topology(BlockLayout(block, kernel[0] * kernel[1] * block, block, block), 0.9, generator)
        x = torch.randn(3, block, *size, generator=generator).bfloat16()
        output_grad = torch.randn(3, block, *geometry.output_size(*size), generator=generator).bfloat16()
        x[-1, 3, *place] = torch.inf
        with torch_threads(2):
            actual = block_conv2d_weight_grad(output_grad, x, *topology, *geometry.as_lists(), x.dtype)
        expected = reference.conv2d_weight_grad(output_grad.double(), x.double(), topology, geometry)
        finite = expected.isfinite()
        assert torch.equal(actual.isfinite(), finite)
        assert_close(actual[finite], expected[finite], x.dtype)


@pytest.mark.parametrize("tokens", [1, 17, 72])
def test_an_infinite_token_reaches_the_gradients_that_read_it_alone(tokens: int) -> None:
    generator = torch.Generator().manual_seed(6)
    topology = random_topology(BlockLayout(64, 96, 32, 32), 1.0, generator)
    x, output_grad = (torch.randn(tokens, size, generator=generator).bfloat16() for size in (96, 64))
    x[-1, 40], output_grad[0, 5] = torch.inf, torch.nan
    actual = block_linear_weight_grad(output_grad, x, *topology, x.dtype)
    expected = reference.linear_weight_grad(output_grad.float(), x.float(), topology)
    assert torch.equal(actual.isfinite(), expected.isfinite())


def test_sums_larger_than_the_second_level_cache_agree_with_float64() -> None:
    for count in (1, 2):
        with torch_threads(count):
            check_linear(
                seed=8,
                block=32,
                dtype=torch.bfloat16,
                tokens=200,
                grid=(13, 12),  # 639 kB of sums, above NEAR_SUM_BYTES
                density=1.0,
                transposed=False,
            )


def test_results_larger_than_the_caches_have_the_same_bits_as_parts_of_them() -> None:
    generator = torch.Generator().manual_seed(7)
    topology = random_topology(BlockLayout(1024, 64, 32, 32), 0.2, generator)
    weight = torch.randn(topology.block_rows.numel(), 32, 32, generator=generator).bfloat16()
    x = torch.randn(4200, 64, generator=generator).bfloat16()  # 8.6 MB of results
    whole = kernels.block_linear_activation(x, weight, None, "gelu", False, *topology)
    part = kernels.block_linear_activation(x[:512], weight, None, "gelu", False, *topology)
    assert all(torch.equal(large[:512], small) for large, small in zip(whole, part, strict=True))
    y = kernels.block_linear(x, weight, None, *topology)
    assert torch.equal(y[:512], kernels.block_linear(x[:512], weight, None, *topology))
