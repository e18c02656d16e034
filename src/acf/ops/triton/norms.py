"""Launching the gradient norms of candidate blocks, of linear layers and convolutions."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from acf.ops import dense, reference
from acf.ops.geometry import Conv2dGeometry
from acf.ops.triton.configs import weight_grad_configs
from acf.ops.triton.conv_kernels import conv_weight_grad_gather_kernel
from acf.ops.triton.launch import Tiled, launch
from acf.ops.triton.norm_kernels import norm_list_kernel, norm_tiles_conv_kernel, norm_tiles_descriptor_kernel
from acf.ops.triton.pixels import ConvProblem
from acf.ops.triton.support import ceil_div, dot_precision, next_power_of_two, readable, supports
from acf.ops.triton.transpose import transposed
from acf.ops.triton.tuning import LaunchConfig
from acf.ops.triton.weight_grad import pack_count
from acf.ops.triton.weight_grad_kernels import weight_grad_gather_kernel, weight_grad_transposed_kernel

TILE_HEIGHT, TILE_WIDTH = 128, 256
BAND = 8
LIST_EFFICIENCY = {128: 0.55, 64: 0.41, 32: 0.13, 16: 0.04}
GROUP_EFFICIENCY = {128: 0.65, 64: 0.55, 32: 0.28, 16: 0.16}
"""Speed of single blocks, and of groups that share their reads, over that of full tiles, measured on an H200."""

NO_GEOMETRY = (1, 1, 1, 0, 0, 1, 1)
"""The geometry constant of a linear layer, which reads none of it."""

GROUP_SIZE = 4  # candidates that one program of a group computes, about

GROUPING_OPERATIONS = 1e11
"""What the device could multiply and add in the 0.1 ms that sorting the candidates into groups takes it."""

DENSE_GRADIENT_BYTES = 32 << 20
"""The largest dense weight gradient that may exist for the sake of its norms."""

MULTIPROCESSORS = 132  # of an H200; whatever the GPU, the order of the costs hardly changes


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
    way = cheapest_way(candidate_rows.numel(), height, x.shape[0], (output_grad.shape[1], x.shape[1]), x.itemsize)
    if way == "dense":
        return dense.linear_gradient_norms(output_grad, x, candidate_rows, candidate_cols, block_shape)
    if way == "list":
        return norms_of_list(output_grad, x, candidate_rows, candidate_cols, height, None)
    if way == "groups":
        return norms_of_groups(output_grad, x, candidate_rows, candidate_cols, height, None)
    return norms_by_tiles(output_grad, x, candidate_rows, candidate_cols, height)


def conv2d_gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block_shape: list[int],
    *pairs: list[int],
) -> Tensor:
    """`reference.conv2d_gradient_norms` on the GPU."""
    geometry = Conv2dGeometry.from_lists(*pairs)
    if dense.dense_chosen():
        return dense.conv2d_gradient_norms(output_grad, x, candidate_rows, candidate_cols, block_shape, geometry)
    height, width = block_shape
    if candidate_rows.numel() == 0 or not supports((height, width), output_grad, x):
        return reference.conv2d_gradient_norms(
            output_grad, x, candidate_rows, candidate_cols, (height, width), geometry
        )
    problem = ConvProblem.build(list(x.shape), list(output_grad.shape), geometry)
    positions = output_grad.numel() // problem.out_channels
    gradient_shape = (problem.out_channels, problem.in_channels * problem.taps)
    way = cheapest_way(candidate_rows.numel(), height, positions, gradient_shape, x.itemsize)
    if way == "dense":
        return dense.conv2d_gradient_norms(output_grad, x, candidate_rows, candidate_cols, block_shape, geometry)
    output_grad, x = problem.pixels_of(output_grad), problem.pixels_of(x)
    if way == "list":
        return norms_of_list(output_grad, x, candidate_rows, candidate_cols, height, problem)
    if way == "groups":
        return norms_of_groups(output_grad, x, candidate_rows, candidate_cols, height, problem)
    return conv_norms_by_tiles(output_grad, x, candidate_rows, candidate_cols, height, problem)


def cheapest_way(candidates: int, block: int, positions: int, gradient_shape: tuple[int, int], itemsize: int) -> str:
    """``list`` (one program per candidate), ``groups`` (of a row or column), ``tiles`` (full ones) or ``dense``.

    A tile is computed once it holds one candidate. A program sums over all positions, so where programs are fewer than
    multiprocessors most of the GPU is idle, as with the few channels and many pixels of a network's first stage. The
    dense library splits such sums: there it is cheapest to compute the whole gradient, if it is small.

    >>> [cheapest_way(count, 32, 8192, (16384, 4096), 2) for count in (40, 6000, 60000)]
    ['list', 'groups', 'tiles']
    >>> cheapest_way(32, 64, 512 * 32 * 32, (128, 9 * 128), 2)
    'dense'
    """
    rows, cols = gradient_shape
    operations = 2 * positions * block * block
    tiles = min(candidates, ceil_div(rows, TILE_HEIGHT) * ceil_div(cols, TILE_WIDTH))
    costs = {
        "list": operations * _full_waves(candidates) / LIST_EFFICIENCY[block],
        "groups": operations * GROUP_SIZE * _full_waves(ceil_div(candidates, GROUP_SIZE)) / GROUP_EFFICIENCY[block]
        + GROUPING_OPERATIONS,
        "tiles": 2 * positions * _full_waves(tiles) * TILE_HEIGHT * TILE_WIDTH,
    }
    if rows * cols * itemsize <= DENSE_GRADIENT_BYTES:
        costs["dense"] = 2 * positions * rows * cols
    return min(costs, key=costs.__getitem__)


def _full_waves(programs: int) -> int:
    """Programs rounded up to whole waves over the multiprocessors: an idle one takes as long as a busy one."""
    return ceil_div(programs, MULTIPROCESSORS) * MULTIPROCESSORS


def norms_of_groups(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block: int,
    problem: ConvProblem | None,
) -> Tensor:
    """Candidates of a row or of a column share the reads of one operand, as in the weight gradient.

    ``output_grad`` and ``x`` are ``[positions, channels]``. The wider operand is shared and the other, of which
    more stays in the cache, gathered; a convolution shares x.
    """
    candidates, rows, cols = candidate_rows.numel(), output_grad.shape[1] // block, x.shape[1] // block
    by_input = problem is not None or cols > rows
    owners = cols * (problem.taps if problem else 1) if by_input else rows
    owner, other = (candidate_cols, candidate_rows) if by_input else (candidate_rows, candidate_cols)
    owner, other = owner.contiguous(), other.contiguous()
    shared, gathered = (x, output_grad) if by_input else (output_grad, x)
    ordered, order = torch.sort(owner)
    offsets = torch.searchsorted(ordered, torch.arange(owners + 1, dtype=owner.dtype, device=owner.device))
    config = group_config(block, x.itemsize, dot_precision(x.dtype), ceil_div(candidates, owners), problem is None)
    works = pack_count(candidates, owners, config.pack)
    norms = torch.empty(candidates, dtype=torch.float32, device=x.device)
    positions = output_grad.shape[0]
    constants: dict[str, Any] = {
        "block": block, "depth": config.depth, "pack": config.pack, "owner_span": next_power_of_two(owners),
        "shared_is_input": by_input, "norms": True, "precision": dot_precision(x.dtype),
        "num_warps": config.warps, "num_stages": config.stages,
    }  # fmt: skip
    if config.kernel == "transposed":
        gathered = transposed(gathered)
        launch(
            weight_grad_transposed_kernel, works, (shared, gathered, norms, offsets, order, other),
            (owners, works, candidates, positions, positions, shared.shape[1], gathered.shape[1]), **constants,
        )  # fmt: skip
        return norms
    operands = (shared, gathered, norms, offsets, order, owner, other)  # of a linear layer then a bias, not read
    counts = (owners, works, candidates, positions, positions, shared.shape[1], gathered.shape[1])
    if problem is None:
        launch(
            weight_grad_gather_kernel, works, (*operands, norms), counts, **constants, wide=config.swap, has_bias=False
        )
        return norms
    del constants["shared_is_input"]  # always so in a convolution
    launch(
        conv_weight_grad_gather_kernel, works, operands, (*counts, cols, *problem.sizes),
        geometry=problem.constants, **constants, wide=config.swap,
    )  # fmt: skip
    return norms


def group_config(block: int, itemsize: int, precision: str, mean_length: int, may_transpose: bool) -> LaunchConfig:
    """The weight gradient's first launch, with packs not much longer than the groups are on average."""
    configs = weight_grad_configs(block, itemsize, precision, (1,))
    config = next(config for config in configs if may_transpose or config.kernel != "transposed")
    return replace(config, pack=min(config.pack, next_power_of_two(mean_length)))


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
    constants = problem.constants if problem else NO_GEOMETRY
    depth = 64 if x.itemsize == 2 else 32
    norm_list_kernel[(candidate_rows.numel(),)](
        output_grad, x, candidate_rows, candidate_cols, norms,
        output_grad.shape[0], output_grad.shape[1], x.shape[1], x.shape[1] // block, *sizes,
        geometry=constants, block=block, depth=depth, convolution=problem is not None, precision=precision,
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
    launch(
        norm_tiles_descriptor_kernel, tile_rows * tile_cols,
        (
            Tiled(output_grad, [config.depth, TILE_HEIGHT]), Tiled(x, [config.depth, width]),
            needed_tiles(tile_of, tile_rows * tile_cols), squares,
        ),
        (tile_rows, tile_cols, *squares.shape, tokens),
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
    launch(
        norm_tiles_conv_kernel, tile_rows * tile_cols,
        (output_grad, x, needed_tiles(tile_of, tile_rows * tile_cols), squares),
        (
            tile_rows, tile_cols, grid_rows, grid_cols, output_grad.shape[0], problem.out_channels,
            problem.in_channels, tiles_per_tap, *problem.sizes,
        ),
        geometry=problem.constants, block=block, height=TILE_HEIGHT, width=width, depth=config.depth,
        band=BAND, precision=precision, num_warps=config.warps, num_stages=min(config.stages, 3),
    )  # fmt: skip
    return squares[candidate_rows.long(), candidate_cols.long()].sqrt_()


def needed_tiles(tile_of_candidate: Tensor, tiles: int) -> Tensor:
    """int32 ``[tiles]``: 1 where at least one candidate lies in the tile."""
    needed = torch.zeros(tiles, dtype=torch.int32, device=tile_of_candidate.device)
    return needed.index_fill_(0, tile_of_candidate.long(), 1)
