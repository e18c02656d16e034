"""Random layers in every pass of the native kernels, and in the gradient norms, against the float64 reference."""

from typing import Any

import torch
from hypothesis import strategies as st

from acf.ops import Conv2dGeometry, reference
from acf.ops.conv import block_conv2d_forward, block_conv2d_input_grad, block_conv2d_weight_grad
from acf.ops.cpu import kernels
from acf.ops.linear import block_linear_forward, block_linear_input_grad, block_linear_weight_grad
from acf.ops.reference import memory_format_of
from acf.sparse import BlockLayout
from tests.ops.cpu.layers import assert_close, random_topology

DENSITIES = (0.0, 0.2, 0.6, 1.0)
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))

LINEAR_LAYERS: dict[str, st.SearchStrategy[Any]] = {
    "seed": st.integers(0, 2**31),
    "tokens": st.sampled_from((0, 1, 2, 7, 63, 64, 65, 200)),
    "grid": st.tuples(st.integers(1, 5), st.integers(1, 5)),
    "density": st.sampled_from(DENSITIES),
    "transposed": st.booleans(),
}
"""What `check_linear` takes besides block and dtype."""

CONV2D_LAYERS: dict[str, st.SearchStrategy[Any]] = {
    "seed": st.integers(0, 2**31),
    "kernel": st.tuples(st.integers(1, 3), st.integers(1, 4)),
    "stride": pairs,
    "padding": st.tuples(st.integers(0, 3), st.integers(0, 3)),
    "dilation": st.tuples(st.integers(1, 2), st.integers(1, 2)),
    "size": st.tuples(st.integers(6, 18), st.integers(7, 18)),
    "batch": st.integers(1, 3),
    "density": st.sampled_from(DENSITIES),
    "channels_last": st.booleans(),
}
"""What `check_conv2d` takes besides block and dtype."""


def check_linear(
    seed: int,
    block: int,
    dtype: torch.dtype,
    tokens: int,
    grid: tuple[int, int],
    density: float,
    transposed: bool,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    layout = BlockLayout(grid[0] * block, grid[1] * block, block, block)
    topology = random_topology(layout, density, generator)
    x = torch.randn(tokens, layout.cols, generator=generator).to(dtype)
    output_grad = torch.randn(tokens, layout.rows, generator=generator).to(dtype)
    weight = torch.randn(topology.block_rows.numel(), block, block, generator=generator).to(dtype)
    if transposed:
        x, output_grad = x.T.contiguous().T, output_grad.T.contiguous().T
    x64, grad64, weight64 = x.double(), output_grad.double(), weight.double()
    bias = torch.randn(layout.rows, generator=generator)
    expected = reference.linear(x64, weight64, topology)
    assert_close(block_linear_forward(x, weight, None, *topology), expected, dtype)
    assert_close(block_linear_forward(x, weight, bias, *topology), expected + bias, dtype)
    assert_close(
        block_linear_input_grad(output_grad, weight, *topology),
        reference.linear_input_grad(grad64, weight64, topology),
        dtype,
    )
    assert_close(
        block_linear_weight_grad(output_grad, x, *topology, x.dtype),
        reference.linear_weight_grad(grad64, x64, topology),
        dtype,
    )
    wanted = random_topology(layout, 0.7, generator)
    candidates = (wanted.block_rows, wanted.block_cols)
    assert_close(
        kernels.block_gradient_norms(output_grad, x, *candidates, [block, block]),
        reference.gradient_norms(grad64, x64, *candidates, (block, block)).double(),
        dtype,
    )


def check_conv2d(
    seed: int,
    block: int,
    dtype: torch.dtype,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    size: tuple[int, int],
    batch: int,
    density: float,
    channels_last: bool,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    geometry = Conv2dGeometry(kernel, stride, padding, dilation)
    lists, out_size = geometry.as_lists(), geometry.output_size(*size)
    in_channels, out_channels = 2 * block, 3 * block if block < 64 else block
    layout = BlockLayout(out_channels, kernel[0] * kernel[1] * in_channels, block, block)
    topology = random_topology(layout, density, generator)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.randn(batch, in_channels, *size, generator=generator).to(dtype).to(memory_format=memory_format)
    output_grad = torch.randn(batch, out_channels, *out_size, generator=generator).to(dtype)
    output_grad = output_grad.to(memory_format=memory_format)
    weight = torch.randn(topology.block_rows.numel(), block, block, generator=generator).to(dtype)
    x64, grad64, weight64 = x.double(), output_grad.double(), weight.double()

    y = block_conv2d_forward(x, weight, None, *topology, *lists)
    assert y.stride() == torch.empty(y.shape, memory_format=memory_format_of(x)).stride()
    expected, bias = reference.conv2d(x64, weight64, topology, geometry), torch.randn(y.shape[1], generator=generator)
    assert_close(y, expected, dtype)
    with_bias = block_conv2d_forward(x, weight, bias, *topology, *lists)
    assert_close(with_bias, expected + bias[:, None, None], dtype)
    assert_close(
        block_conv2d_input_grad(output_grad, weight, *topology, list(x.shape), *lists),
        reference.conv2d_input_grad(grad64, weight64, topology, list(x.shape), geometry),
        dtype,
    )
    assert_close(
        block_conv2d_weight_grad(output_grad, x, *topology, *lists, x.dtype),
        reference.conv2d_weight_grad(grad64, x64, topology, geometry),
        dtype,
    )
    wanted = random_topology(layout, 0.4, generator)
    candidates = (wanted.block_rows, wanted.block_cols)
    assert_close(
        kernels.block_conv2d_gradient_norms(output_grad, x, *candidates, [block, block], *lists),
        reference.conv2d_gradient_norms(grad64, x64, *candidates, (block, block), geometry).double(),
        dtype,
    )
