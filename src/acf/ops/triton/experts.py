"""Launching the products of a mixture of experts, and the gradient norms of its candidate blocks."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acf.ops import expert_loop, reference
from acf.ops.triton.configs import product_configs, weight_grad_configs
from acf.ops.triton.experts_kernels import experts_product_kernel, experts_weight_grad_kernel
from acf.ops.triton.launch import Tiled, launch
from acf.ops.triton.norms import group_config
from acf.ops.triton.product import walk_of
from acf.ops.triton.support import DTYPES, ceil_div, dot_precision, next_power_of_two, readable, supports
from acf.ops.triton.tuning import TUNER, LaunchConfig, ProblemKey, density_bucket, token_bucket
from acf.ops.triton.weight_grad import pack_count
from acf.sparse import BlockTopology


def experts(x: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
    """`expert_loop.linear` on the GPU."""
    topology, offsets = BlockTopology(*rest[:6]), rest[6]
    if not supports((weight.shape[1], weight.shape[2]), x, weight):
        return expert_loop.linear(x, weight, topology, offsets, reference.linear)
    return _product(x, weight, topology, offsets, forward=True)


def experts_input_grad(output_grad: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
    """`expert_loop.input_grad` on the GPU."""
    topology, offsets = BlockTopology(*rest[:6]), rest[6]
    if not supports((weight.shape[1], weight.shape[2]), output_grad, weight):
        return expert_loop.input_grad(output_grad, weight, topology, offsets, reference.linear_input_grad)
    return _product(output_grad, weight, topology, offsets, forward=False)


def experts_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    """`expert_loop.weight_grad` on the GPU."""
    topology, offsets, dtype = BlockTopology(*rest[:6]), rest[6], rest[7]
    rows, cols = expert_loop.rows_per_expert(topology, offsets), expert_loop.cols_per_expert(topology, offsets)
    block, blocks, precision = output_grad.shape[1] // rows, topology.block_rows.numel(), dot_precision(x.dtype)
    if blocks == 0 or dtype not in DTYPES or not supports((block, x.shape[1] // cols), output_grad, x):
        product = reference.linear_weight_grad
        return expert_loop.weight_grad(output_grad, x, topology, offsets, product).to(dtype)
    output_grad, x = readable(output_grad), readable(x)
    out = x.new_empty((blocks, block, block), dtype=dtype)
    count, operands = expert_loop.expert_count(offsets), (output_grad, x)

    def start(config: LaunchConfig) -> None:
        launch_weight_grad(config, operands, out, owners_of(topology, config.by_input), offsets)

    signature = ("experts_weight_grad", output_grad.shape, x.shape, blocks, count, x.dtype, dtype, precision, x.device)
    key = _describe("experts_weight_grad", (output_grad.shape[1], x.shape[1]), block, topology, offsets, x)
    start(TUNER.choose(signature, key, expert_weight_grad_configs(block, x.itemsize, precision), start))
    return out


def experts_gradient_norms(
    output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor, offsets: Tensor, block_shape: list[int]
) -> Tensor:
    """`expert_loop.gradient_norms` on the GPU: candidates of a row or column share the reads of one operand."""
    height, width = block_shape
    if rows.numel() == 0 or not supports((height, width), output_grad, x):
        norms_of = reference.gradient_norms
        return expert_loop.gradient_norms(output_grad, x, (rows, cols), offsets, (height, width), norms_of)
    output_grad, x = readable(output_grad), readable(x)
    count, grid_rows, grid_cols = expert_loop.expert_count(offsets), output_grad.shape[1] // height, x.shape[1] // width
    by_input = grid_cols > grid_rows
    per_expert = grid_cols if by_input else grid_rows
    owner = torch.div(rows, grid_rows, rounding_mode="floor") * grid_cols + cols if by_input else rows
    ordered, order = torch.sort(owner)
    bounds = torch.arange(count * per_expert + 1, dtype=owner.dtype, device=owner.device)
    owners = Owners(torch.searchsorted(ordered, bounds), order, (rows if by_input else cols).contiguous())
    mean_length = ceil_div(rows.numel(), count * per_expert)
    config = group_config(height, x.itemsize, dot_precision(x.dtype), mean_length, may_transpose=False)
    norms = torch.empty(rows.numel(), dtype=torch.float32, device=x.device)
    launch_weight_grad(replace(config, by_input=by_input), (output_grad, x), norms, owners, offsets, height)
    return norms


class Owners(NamedTuple):
    """Blocks by column or by row of all experts: offsets, slots, and the other coordinate of each slot."""

    offsets: Tensor
    slots: Tensor
    gathered_index: Tensor


def owners_of(topology: BlockTopology, by_input: bool) -> Owners:
    """The present blocks by column (``by_input``) or by row."""
    if by_input:
        return Owners(topology.col_offsets, topology.col_slots, topology.block_rows)
    return Owners(topology.row_offsets, topology.row_slots, topology.block_cols)


def launch_weight_grad(
    config: LaunchConfig,
    operands: tuple[Tensor, Tensor],
    out: Tensor,
    owners: Owners,
    token_offsets: Tensor,
    block: int | None = None,
) -> None:
    """Fill ``out [nnz, block, block]`` from ``operands``, output gradient and x; or ``out [nnz]`` with the norms.

    Norms are asked for by giving their ``block``.
    """
    shared, gathered = reversed(operands) if config.by_input else operands
    size, blocks, count = block or out.shape[-1], out.shape[0], owners.offsets.numel() - 1
    launch(
        experts_weight_grad_kernel, pack_count(blocks, count, config.pack),
        (shared, gathered, out, *owners, token_offsets),
        (count, count // expert_loop.expert_count(token_offsets), operands[0].shape[1] // size,
         shared.shape[1], gathered.shape[1]),
        block=size, depth=config.depth, pack=config.pack, owner_span=next_power_of_two(count),
        shared_is_input=config.by_input, wide=config.swap, norms=block is not None,
        precision=dot_precision(shared.dtype), num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


def launch_product(
    config: LaunchConfig,
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    topology: BlockTopology,
    offsets: Tensor,
    forward: bool,
) -> None:
    """Fill ``out [tokens, groups * block]`` from contiguous ``x`` and ``weight [nnz, block, block]``."""
    tokens, block, count = x.shape[0], weight.shape[1], expert_loop.expert_count(offsets)
    groups, walk = out.shape[1] // block, walk_of(topology, forward)
    tiles = tokens // config.tile + count + 1  # the most there can be: the grid must not wait for the true number
    launch(
        experts_product_kernel, groups * tiles,
        (
            Tiled(x, [config.tile, config.depth]),
            Tiled(weight.view(-1, block), [block, config.depth] if forward else [config.depth, block]),
            Tiled(out, [config.tile, block]), out, *walk, offsets,
        ),
        (groups, x.shape[1] // block, count, tokens),
        block=block, token_tile=config.tile, depth=config.depth, expert_span=next_power_of_two(count + 2),
        forward=forward, swap=config.swap, precision=dot_precision(x.dtype),
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


def _product(x: Tensor, weight: Tensor, topology: BlockTopology, offsets: Tensor, forward: bool) -> Tensor:
    x, weight, block, precision = readable(x), readable(weight), weight.shape[1], dot_precision(x.dtype)
    per_expert = expert_loop.rows_per_expert if forward else expert_loop.cols_per_expert
    out = x.new_empty((x.shape[0], per_expert(topology, offsets) * block))

    def start(config: LaunchConfig) -> None:
        launch_product(config, x, weight, out, topology, offsets, forward)

    op = "experts_forward" if forward else "experts_input_grad"
    signature = (op, x.shape, weight.shape, out.shape, offsets.shape, x.dtype, precision, x.device)
    key = _describe(op, (out.shape[1], x.shape[1]), block, topology, offsets, x)
    start(TUNER.choose(signature, key, expert_product_configs(block, x.itemsize, precision), start))
    return out


def _describe(
    op: str, shape: tuple[int, int], block: int, topology: BlockTopology, offsets: Tensor, x: Tensor
) -> Callable[[], ProblemKey]:
    """The key of a problem; ``shape`` is that of one expert's outputs and inputs."""
    count = expert_loop.expert_count(offsets)
    grid = expert_loop.rows_per_expert(topology, offsets), expert_loop.cols_per_expert(topology, offsets)
    return lambda: ProblemKey(
        op,
        *shape,
        block,
        str(x.dtype),
        dot_precision(x.dtype),
        density_bucket(topology.block_rows.numel(), count * grid[0], grid[1]),
        token_bucket(x.shape[0]),
        detail=f"{count} experts",
    )


@cache
def expert_product_configs(block: int, itemsize: int, precision: str) -> tuple[LaunchConfig, ...]:
    """Those of linear layers that the kernel has, and a small tile for experts with few tokens."""
    configs = [
        replace(config, pack=1)
        for config in product_configs(block, itemsize, precision)
        if config.kernel == "descriptor"
    ]
    return (*configs, replace(configs[0], tile=64, swap=False, warps=4))


@cache
def expert_weight_grad_configs(block: int, itemsize: int, precision: str) -> tuple[LaunchConfig, ...]:
    """Those of linear layers that the kernel has, without splits of the tokens."""
    configs = weight_grad_configs(block, itemsize, precision, (1,))
    return tuple(config for config in configs if config.kernel == "gather")
