"""Launching the products with an activation, or its slope, in their epilogue."""

from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from torch import Tensor

from acf.ops import mlp as mlp_ops
from acf.ops.triton import warp_specialised
from acf.ops.triton.configs import WARP_SPECIALISED_PRODUCT, product_configs
from acf.ops.triton.launch import Tiled, known_launch, launch
from acf.ops.triton.mlp_kernels import product_activation_kernel, product_scaled_kernel
from acf.ops.triton.product import walk_of
from acf.ops.triton.support import ceil_div, dot_precision, readable, supports
from acf.ops.triton.tuning import TUNER, LaunchConfig, ProblemKey, density_bucket, token_bucket
from acf.sparse import BlockTopology

_PREPARED: dict[Hashable, Callable[..., bool]] = {}


def epilogue_configs(block: int, itemsize: int, precision: str) -> tuple[LaunchConfig, ...]:
    """The configurations of a plain product that read through descriptors, one block at a time."""
    return tuple(
        config
        for config in product_configs(block, itemsize, precision)
        if config.kernel == "descriptor" and config.pack == 1
    )


def linear_activation(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, packed: bool, *tensors: Tensor
) -> tuple[Tensor, Tensor]:
    """`acf.ops.mlp.block_linear_activation` on the GPU."""
    _, block_cols, row_offsets, row_slots, _, _ = tensors
    groups = row_offsets.shape[0] - 1
    bias_dtype, precision = None if bias is None else bias.dtype, dot_precision(x.dtype)
    shapes = (x.shape, weight.shape, groups, packed)
    signature = (activation, *shapes, bias_dtype, x.dtype, weight.dtype, precision, x.get_device())
    prepared = _PREPARED.get(signature) if packed else known_launch(_PREPARED, signature)
    if prepared is not None:
        x, weight = x.contiguous(), weight.contiguous()
        activated, slope = _results(x, groups, weight.shape[1], packed)
        shift = weight if bias is None else bias.contiguous()
        if prepared(x, weight, activated, slope, shift, row_offsets, row_slots, block_cols):
            return activated, slope
    if not packed and not _supports(x, weight):
        return mlp_ops.linear_then_activation(x, weight, bias, activation, packed, *tensors)
    x, weight, topology = readable(x), readable(weight), BlockTopology(*tensors)
    bias, results = None if bias is None else readable(bias), _results(x, groups, weight.shape[1], packed)

    def start(config: LaunchConfig) -> Callable[..., bool] | None:
        return launch_activation(config, x, weight, bias, results, topology, activation)

    # All activations share one choice: they cost about the same.
    _run(Product("gelu", x, weight, groups, packed), signature, start)
    return results


def _results(x: Tensor, groups: int, block: int, packed: bool) -> tuple[Tensor, Tensor]:
    activated = x.new_empty((x.shape[0], groups * block))
    return activated, mlp_ops.packed_slopes(x, groups * block, block) if packed else torch.empty_like(activated)


def linear_scaled_input_grad(output_grad: Tensor, weight: Tensor, scale: Tensor, *tensors: Tensor) -> Tensor:
    """`acf.ops.mlp.block_linear_scaled_input_grad` on the GPU."""
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
        return mlp_ops.input_grad_then_scale(output_grad, weight, scale, *tensors)
    output_grad, weight, scale = readable(output_grad), readable(weight), scale if packed else readable(scale)
    out, topology = output_grad.new_empty(shape), BlockTopology(*tensors)

    def start(config: LaunchConfig) -> Callable[..., bool] | None:
        return launch_scaled(config, output_grad, weight, scale, out, topology)

    _run(Product("scaled", output_grad, weight, groups, packed), signature, start)
    return out


def _supports(x: Tensor, weight: Tensor, *rest: Tensor) -> bool:
    blocks = (weight.shape[1], weight.shape[2])
    return supports(blocks, x, weight, *rest) and bool(epilogue_configs(blocks[0], x.itemsize, dot_precision(x.dtype)))


class Product(NamedTuple):
    """A product with an epilogue, for which there is one configuration only if it has ``packed`` slopes."""

    op: str
    x: Tensor
    weight: Tensor
    groups: int
    packed: bool

    def key(self) -> ProblemKey:
        """The key under which its configuration is remembered."""
        x, weight, groups = self.x, self.weight, self.groups
        block, tokens = weight.shape[1], token_bucket(x.shape[0])
        density, precision = density_bucket(weight.shape[0], groups, x.shape[1] // block), dot_precision(x.dtype)
        return ProblemKey(self.op, groups * block, x.shape[1], block, str(x.dtype), precision, density, tokens)

    def config(self, signature: Hashable, start: Callable[[LaunchConfig], object]) -> LaunchConfig:
        """The remembered configuration, or the fastest under ``start``."""
        if self.packed:
            return WARP_SPECIALISED_PRODUCT[self.weight.shape[1]]
        configs = epilogue_configs(self.weight.shape[1], self.x.itemsize, dot_precision(self.x.dtype))
        return TUNER.choose(signature, self.key, configs, start)


def _run(product: Product, signature: Hashable, start: Callable[[LaunchConfig], Callable[..., bool] | None]) -> None:
    """Choose a configuration, launch it by ``start``, and remember the launch where it can be repeated."""
    prepared = start(product.config(signature, start))
    if prepared is not None and (product.packed or TUNER.remembers(signature)):
        _PREPARED[signature] = prepared


def launch_activation(
    config: LaunchConfig,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    results: tuple[Tensor, Tensor],
    topology: BlockTopology,
    activation: str,
) -> Callable[..., bool] | None:
    """Fill ``results``, value and slope ``[tokens, out]``; the operands of the launch are in the kernel's order."""
    walk, block, (activated, slope) = walk_of(topology, True), weight.shape[1], results
    if config.kernel == "warp-specialised":
        return warp_specialised.launch_activation(config, x, weight, bias, results, walk, activation)
    out_box = [config.tile, block]
    return launch(
        product_activation_kernel,
        walk.groups * ceil_div(x.shape[0], config.tile),
        (
            Tiled(x, [config.tile, config.depth]), Tiled(weight.view(-1, block), [block, config.depth]),
            Tiled(activated, out_box), Tiled(slope, out_box), weight if bias is None else bias, *walk,
        ),
        (walk.groups,),
        block=block, token_tile=config.tile, depth=config.depth, swap=config.swap, has_bias=bias is not None,
        activation=activation, precision=dot_precision(x.dtype), num_warps=config.warps, num_stages=config.stages,
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
