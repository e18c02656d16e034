"""Launching the products with a GELU in them."""

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from acf.ops import gelu as gelu_ops
from acf.ops.triton import warp_specialised
from acf.ops.triton.configs import WARP_SPECIALISED_PRODUCT, product_configs
from acf.ops.triton.gelu_kernels import product_gelu_kernel, product_scaled_kernel
from acf.ops.triton.launch import Tiled, known_launch, launch
from acf.ops.triton.product import walk_of
from acf.ops.triton.support import ceil_div, dot_precision, readable, supports
from acf.ops.triton.tuning import TUNER, LaunchConfig, ProblemKey, density_bucket, token_bucket
from acf.sparse import BlockTopology

_PREPARED: dict[Hashable, Callable[..., bool]] = {}


def gelu_configs(block: int, itemsize: int, precision: str) -> tuple[LaunchConfig, ...]:
    """The configurations of a plain product that read through descriptors, one block at a time."""
    return tuple(
        config
        for config in product_configs(block, itemsize, precision)
        if config.kernel == "descriptor" and config.pack == 1
    )


def linear_gelu(
    x: Tensor, weight: Tensor, bias: Tensor | None, packed: bool, *tensors: Tensor
) -> tuple[Tensor, Tensor]:
    """`acf.ops.gelu.block_linear_gelu` on the GPU."""
    _, block_cols, row_offsets, row_slots, _, _ = tensors
    groups = row_offsets.shape[0] - 1
    bias_dtype, precision = None if bias is None else bias.dtype, dot_precision(x.dtype)
    shapes = (x.shape, weight.shape, groups, packed)
    signature = ("gelu", *shapes, bias_dtype, x.dtype, weight.dtype, precision, x.get_device())
    prepared = _PREPARED.get(signature) if packed else known_launch(_PREPARED, signature)
    if prepared is not None:
        x, weight = x.contiguous(), weight.contiguous()
        activated, slope = _results(x, groups, weight.shape[1], packed)
        shift = weight if bias is None else bias
        if prepared(x, weight, activated, slope, shift, row_offsets, row_slots, block_cols):
            return activated, slope
    if not packed and not _supports(x, weight):
        return gelu_ops.linear_then_gelu(x, weight, bias, packed, *tensors)
    x, weight, topology = readable(x), readable(weight), BlockTopology(*tensors)
    activated, slope = _results(x, groups, weight.shape[1], packed)
    _run("gelu", signature, x, weight, True, packed, topology, lambda config: launch_gelu(
        config, x, weight, bias, activated, slope, topology
    ))  # fmt: skip
    return activated, slope


def _results(x: Tensor, groups: int, block: int, packed: bool) -> tuple[Tensor, Tensor]:
    activated = x.new_empty((x.shape[0], groups * block))
    return activated, gelu_ops.packed_slopes(x, groups * block, block) if packed else torch.empty_like(activated)


def linear_scaled_input_grad(output_grad: Tensor, weight: Tensor, scale: Tensor, *tensors: Tensor) -> Tensor:
    """`acf.ops.gelu.block_linear_scaled_input_grad` on the GPU."""
    block_rows, _, _, _, col_offsets, col_slots = tensors
    groups = col_offsets.shape[0] - 1
    dtypes, precision = (scale.dtype, output_grad.dtype, weight.dtype), dot_precision(output_grad.dtype)
    signature = ("scaled", output_grad.shape, weight.shape, groups, *dtypes, precision, output_grad.get_device())
    packed, shape = scale.dim() == 1, (output_grad.shape[0], groups * weight.shape[2])
    prepared = _PREPARED.get(signature) if packed else known_launch(_PREPARED, signature)
    if prepared is not None:
        output_grad, weight, scale = output_grad.contiguous(), weight.contiguous(), scale.contiguous()
        out = output_grad.new_empty(shape)
        if prepared(output_grad, weight, scale, out, col_offsets, col_slots, block_rows):
            return out
    if not packed and not _supports(output_grad, weight, scale):
        return gelu_ops.input_grad_then_scale(output_grad, weight, scale, *tensors)
    output_grad, weight, scale = readable(output_grad), readable(weight), scale if packed else readable(scale)
    out, topology = output_grad.new_empty(shape), BlockTopology(*tensors)
    _run("scaled", signature, output_grad, weight, False, packed, topology, lambda config: launch_scaled(
        config, output_grad, weight, scale, out, topology
    ))  # fmt: skip
    return out


def _supports(x: Tensor, weight: Tensor, *rest: Tensor) -> bool:
    blocks = (weight.shape[1], weight.shape[2])
    return supports(blocks, x, weight, *rest) and bool(gelu_configs(blocks[0], x.itemsize, dot_precision(x.dtype)))


def _run(
    op: str,
    signature: Hashable,
    x: Tensor,
    weight: Tensor,
    forward: bool,
    packed: bool,
    topology: BlockTopology,
    start: Callable[[LaunchConfig], Callable[..., bool] | None],
) -> None:
    """Choose a configuration, launch it, and remember how, where that is possible; for ``packed`` there is but one."""
    block, groups, precision = weight.shape[1], walk_of(topology, forward).groups, dot_precision(x.dtype)

    def describe() -> ProblemKey:
        density = density_bucket(weight.shape[0], groups, x.shape[1] // block)
        tokens = token_bucket(x.shape[0])
        return ProblemKey(op, groups * block, x.shape[1], block, str(x.dtype), precision, density, tokens)

    if packed:
        config = WARP_SPECIALISED_PRODUCT[block]
    else:
        config = TUNER.choose(signature, describe, gelu_configs(block, x.itemsize, precision), start)
    prepared = start(config)
    if prepared is not None and (packed or TUNER.remembers(signature)):
        _PREPARED[signature] = prepared


def launch_gelu(
    config: LaunchConfig,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activated: Tensor,
    slope: Tensor,
    topology: BlockTopology,
) -> Callable[..., bool] | None:
    """Fill ``activated`` and ``slope [tokens, out]``; the operands of the launch are in the kernel's order."""
    walk, block = walk_of(topology, True), weight.shape[1]
    if config.kernel == "warp-specialised":
        return warp_specialised.launch_gelu(config, x, weight, bias, activated, slope, walk)
    out_box = [config.tile, block]
    return launch(
        product_gelu_kernel,
        walk.groups * ceil_div(x.shape[0], config.tile),
        (
            Tiled(x, [config.tile, config.depth]), Tiled(weight.view(-1, block), [block, config.depth]),
            Tiled(activated, out_box), Tiled(slope, out_box), weight if bias is None else bias, *walk,
        ),
        (walk.groups,),
        block=block, token_tile=config.tile, depth=config.depth, swap=config.swap, has_bias=bias is not None,
        precision=dot_precision(x.dtype), num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


def launch_scaled(
    config: LaunchConfig, output_grad: Tensor, weight: Tensor, scale: Tensor, out: Tensor, topology: BlockTopology
) -> Callable[..., bool] | None:
    """Fill ``out [tokens, in]``; the operands of the launch are in the kernel's order."""
    walk, block = walk_of(topology, False), weight.shape[1]
    if config.kernel == "warp-specialised":
        return warp_specialised.launch_scaled(config, output_grad, weight, scale, out, walk)
    return launch(
        product_scaled_kernel,
        walk.groups * ceil_div(output_grad.shape[0], config.tile),
        (
            Tiled(output_grad, [config.tile, config.depth]), Tiled(weight.view(-1, block), [config.depth, block]),
            Tiled(scale, [config.tile, block]), Tiled(out, [config.tile, block]), *walk,
        ),
        (walk.groups,),
        block=block, token_tile=config.tile, depth=config.depth, swap=config.swap,
        precision=dot_precision(output_grad.dtype), num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
