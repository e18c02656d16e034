"""Launching the gradient norms of candidate blocks, of linear layers and convolutions."""

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from acf.ops import dense, reference
from acf.ops.triton.norm_kernels import norm_list_kernel, norm_tiles_conv_kernel, norm_tiles_descriptor_kernel
from acf.ops.triton.pixels import ConvProblem, geometry_of
from acf.ops.triton.support import ceil_div, dot_precision, readable, supports
from acf.ops.triton.tuning import LaunchConfig

TILE_HEIGHT, TILE_WIDTH = 128, 256
BAND = 8
LIST_EFFICIENCY = {128: 0.48, 64: 0.41, 32: 0.11, 16: 0.05}
"""Speed of single blocks over that of full tiles, measured on an H200: small blocks reuse less of what they read."""


def linear_gradient_norms(
    output_grad: Tensor, x: Tensor, candidate_rows: Tensor, candidate_cols: Tensor, block_shape: list[int]
) -> Tensor:
    """`reference.gradient_norms` on the GPU."""
    if dense.dense_chosen():
        return dense.linear_gradient_norms(output_grad, x, candidate_rows, candidate_cols, block_shape)
    height, width = block_shape
    if candidate_rows.numel() == 0 or not supports((height, width), output_grad, x):
        return reference.gradient_norms(output_grad, x, candidate_rows, candidate_cols, (height, width))
    output_grad, x = readable(output_grad), readable(x)
    if prefers_list(candidate_rows.numel(), height, output_grad.shape[1], x.shape[1]):
        return norms_of_list(output_grad, x, candidate_rows, candidate_cols, height, None)
    return norms_by_tiles(output_grad, x, candidate_rows, candidate_cols, height)


def conv2d_gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block_shape: list[int],
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Tensor:
    """`reference.conv2d_gradient_norms` on the GPU."""
    if dense.dense_chosen():
        return dense.conv2d_gradient_norms(
            output_grad, x, candidate_rows, candidate_cols, block_shape, kernel_size, stride, padding, dilation
        )
    height, width = block_shape
    if candidate_rows.numel() == 0 or not supports((height, width), output_grad, x):
        return reference.conv2d_gradient_norms(
            output_grad, x, candidate_rows, candidate_cols, (height, width), kernel_size, stride, padding, dilation
        )
    geometry = geometry_of(kernel_size, stride, padding, dilation)
    problem = ConvProblem.build(list(x.shape), list(output_grad.shape), geometry)
    output_grad, x = problem.pixels_of(output_grad), problem.pixels_of(x)
    if prefers_list(candidate_rows.numel(), height, problem.out_channels, problem.in_channels * problem.taps):
        return norms_of_list(output_grad, x, candidate_rows, candidate_cols, height, problem)
    return conv_norms_by_tiles(output_grad, x, candidate_rows, candidate_cols, height, problem)


def prefers_list(candidates: int, block: int, rows: int, cols: int) -> bool:
    """Whether single blocks cost less than the tiles that may hold them. A tile is computed once it holds one."""
    width = TILE_WIDTH
    tiles = min(candidates, ceil_div(rows, TILE_HEIGHT) * ceil_div(cols, width))
    return candidates * block * block / LIST_EFFICIENCY[block] < tiles * TILE_HEIGHT * width


def norms_of_list(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block: int,
    problem: ConvProblem | None,
) -> Tensor:
    """One program per candidate; ``output_grad`` and ``x`` are ``[positions, channels]``."""
    norms = torch.empty(candidate_rows.numel(), dtype=torch.float32, device=x.device)
    precision = dot_precision(x.dtype)
    sizes = problem.sizes if problem else (1, 1, 1, 1)
    constants = problem.constants if problem else ConvProblem.identity_constants()
    depth = 64 if x.itemsize == 2 else 32
    norm_list_kernel[(candidate_rows.numel(),)](
        output_grad, x, candidate_rows, candidate_cols, norms,
        output_grad.shape[0], output_grad.shape[1], x.shape[1], x.shape[1] // block, *sizes,
        **constants, block=block, depth=depth, convolution=problem is not None, precision=precision,
        num_warps=4 if precision == "tf32" else 8, num_stages=3,
    )  # fmt: skip
    return norms


def tile_config(itemsize: int, precision: str) -> LaunchConfig:
    """Launch of the tile kernels: exact float32 needs short steps, its operands live in registers."""
    if itemsize == 2:
        return LaunchConfig("descriptor", depth=64, warps=8, stages=4)
    return LaunchConfig("descriptor", depth=32 if precision == "tf32" else 16, warps=8, stages=2)


def norms_by_tiles(
    output_grad: Tensor, x: Tensor, candidate_rows: Tensor, candidate_cols: Tensor, block: int
) -> Tensor:
    """Norms float32 ``[candidates]`` from whole tiles of the gradient, which never leave the registers."""
    (tokens, rows), cols, width = output_grad.shape, x.shape[1], TILE_WIDTH
    tile_rows, tile_cols = ceil_div(rows, TILE_HEIGHT), ceil_div(cols, width)
    tile_of = (candidate_rows // (TILE_HEIGHT // block)) * tile_cols + candidate_cols // (width // block)
    squares = torch.empty((rows // block, cols // block), dtype=torch.float32, device=x.device)
    precision = dot_precision(x.dtype)
    config = tile_config(x.itemsize, precision)
    norm_tiles_descriptor_kernel[(tile_rows * tile_cols,)](
        TensorDescriptor.from_tensor(output_grad, [config.depth, TILE_HEIGHT]),
        TensorDescriptor.from_tensor(x, [config.depth, width]),
        needed_tiles(tile_of, tile_rows * tile_cols), squares, tile_rows, tile_cols, *squares.shape, tokens,
        block=block, height=TILE_HEIGHT, width=width, depth=config.depth, band=BAND, precision=precision,
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    return squares[candidate_rows.long(), candidate_cols.long()].sqrt_()


def conv_norms_by_tiles(
    output_grad: Tensor, x: Tensor, candidate_rows: Tensor, candidate_cols: Tensor, block: int, problem: ConvProblem
) -> Tensor:
    """`norms_by_tiles` for a convolution; a tile lies within one kernel tap."""
    width = TILE_WIDTH
    blocks_per_tap, tiles_per_tap = problem.in_channels // block, ceil_div(problem.in_channels, width)
    tile_rows, tile_cols = ceil_div(problem.out_channels, TILE_HEIGHT), tiles_per_tap * problem.taps
    tile_col = (candidate_cols // blocks_per_tap) * tiles_per_tap + (candidate_cols % blocks_per_tap) // (
        width // block
    )
    tile_of = (candidate_rows // (TILE_HEIGHT // block)) * tile_cols + tile_col
    grid_rows, grid_cols = problem.out_channels // block, blocks_per_tap * problem.taps
    squares = torch.empty((grid_rows, grid_cols), dtype=torch.float32, device=x.device)
    precision = dot_precision(x.dtype)
    config = tile_config(x.itemsize, precision)
    norm_tiles_conv_kernel[(tile_rows * tile_cols,)](
        output_grad, x, needed_tiles(tile_of, tile_rows * tile_cols), squares, tile_rows, tile_cols,
        grid_rows, grid_cols, output_grad.shape[0], problem.out_channels, problem.in_channels, tiles_per_tap,
        *problem.sizes, **problem.constants, block=block, height=TILE_HEIGHT, width=width, depth=config.depth,
        band=BAND, precision=precision, num_warps=config.warps, num_stages=min(config.stages, 3),
    )  # fmt: skip
    return squares[candidate_rows.long(), candidate_cols.long()].sqrt_()


def needed_tiles(tile_of_candidate: Tensor, tiles: int) -> Tensor:
    """int32 ``[tiles]``: 1 where at least one candidate lies in the tile."""
    needed = torch.zeros(tiles, dtype=torch.int32, device=tile_of_candidate.device)
    return needed.index_fill_(0, tile_of_candidate.long(), 1)
