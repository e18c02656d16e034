"""Launching the three passes of block-sparse 2-D convolutions."""

from typing import cast

import torch
from torch import Tensor

from acf.ops import reference
from acf.ops.conv import Conv2dGeometry
from acf.ops.reference import memory_format_of
from acf.ops.triton.configs import conv_product_configs, conv_weight_grad_configs
from acf.ops.triton.conv_kernels import (
    conv_product_descriptor_kernel,
    conv_product_kernel,
    conv_weight_grad_descriptor_kernel,
)
from acf.ops.triton.geometry_kernels import merge_taps_kernel
from acf.ops.triton.launch import Tiled, launch
from acf.ops.triton.pixels import ConvProblem, geometry_of, pixel_box
from acf.ops.triton.support import ceil_div, dot_precision, next_power_of_two, readable, supports
from acf.ops.triton.tuning import TUNER, LaunchConfig, ProblemKey, density_bucket, token_bucket
from acf.ops.triton.weight_grad import add_splits, split_choices
from acf.ops.triton.weight_grad_kernels import weight_grad_gather_kernel
from acf.sparse import BlockTopology


def conv2d(x: Tensor, weight: Tensor, *rest: Tensor | list[int]) -> Tensor:
    """`reference.conv2d` on the GPU."""
    topology, geometry = _unpack_arguments(rest)
    block = weight.shape[1]
    if not supports((block, weight.shape[2]), x, weight) or x.shape[1] % block:
        return reference.conv2d(x, weight, topology, *geometry.as_lists())
    output_shape = [
        x.shape[0],
        (topology.row_offsets.numel() - 1) * block,
        *geometry.output_size(x.shape[2], x.shape[3]),
    ]
    problem = ConvProblem.build(list(x.shape), output_shape, geometry)
    source, weight = problem.pixels_of(x), readable(weight)
    out = torch.empty((_pixels(output_shape), output_shape[1]), dtype=x.dtype, device=x.device)
    config = TUNER.choose(
        ("forward", problem, weight.shape, x.dtype, dot_precision(x.dtype)),
        lambda: _key("conv_forward", problem, topology, x, block),
        conv_product_configs(block, x.itemsize, dot_precision(x.dtype), problem.unstrided),
        lambda candidate: launch_conv_forward(candidate, source, weight, out, topology, problem),
    )
    launch_conv_forward(config, source, weight, out, topology, problem)
    return _as_images(out, output_shape, memory_format_of(x))


def conv2d_input_grad(output_grad: Tensor, weight: Tensor, *rest: Tensor | list[int]) -> Tensor:
    """`reference.conv2d_input_grad` on the GPU."""
    input_size = rest[6]
    assert isinstance(input_size, list)
    topology, geometry = _unpack_arguments((*rest[:6], *rest[7:]))
    block = weight.shape[1]
    if not supports((block, weight.shape[2]), output_grad, weight) or input_size[1] % block:
        return reference.conv2d_input_grad(output_grad, weight, topology, input_size, *geometry.as_lists())
    problem = ConvProblem.build(input_size, list(output_grad.shape), geometry)
    source, weight = problem.pixels_of(output_grad), readable(weight)
    out = torch.empty((_pixels(input_size), input_size[1]), dtype=output_grad.dtype, device=output_grad.device)
    config = TUNER.choose(
        ("input_grad", problem, weight.shape, output_grad.dtype, dot_precision(output_grad.dtype)),
        lambda: _key("conv_input_grad", problem, topology, output_grad, block),
        conv_product_configs(block, output_grad.itemsize, dot_precision(output_grad.dtype), problem.unstrided),
        lambda candidate: launch_conv_input_grad(candidate, source, weight, out, topology, problem),
    )
    launch_conv_input_grad(config, source, weight, out, topology, problem)
    return _as_images(out, input_size, memory_format_of(output_grad))


def conv2d_weight_grad(output_grad: Tensor, x: Tensor, *rest: Tensor | list[int]) -> Tensor:
    """`reference.conv2d_weight_grad` on the GPU."""
    topology, geometry = _unpack_arguments(rest)
    problem = ConvProblem.build(list(x.shape), list(output_grad.shape), geometry)
    block = problem.out_channels // (topology.row_offsets.numel() - 1)
    width = problem.in_channels * problem.taps // (topology.col_offsets.numel() - 1)
    blocks = topology.block_rows.numel()
    if blocks == 0 or not supports((block, width), output_grad, x) or problem.in_channels % block:
        return reference.conv2d_weight_grad(output_grad, x, topology, *geometry.as_lists())
    gradient, source = problem.pixels_of(output_grad), problem.pixels_of(x)
    out = torch.empty((blocks, block, block), dtype=x.dtype, device=x.device)
    config = TUNER.choose(
        ("weight_grad", problem, out.shape, x.dtype, dot_precision(x.dtype)),
        lambda: _key("conv_weight_grad", problem, topology, x, block),
        conv_weight_grad_configs(
            block, x.itemsize, dot_precision(x.dtype), problem.unstrided, split_choices(blocks, 1)
        ),
        lambda candidate: launch_conv_weight_grad(candidate, gradient, source, out, topology, problem),
    )
    launch_conv_weight_grad(config, gradient, source, out, topology, problem)
    return out


def launch_conv_forward(
    config: LaunchConfig, source: Tensor, weight: Tensor, out: Tensor, topology: BlockTopology, problem: ConvProblem
) -> None:
    """Fill ``out [output pixels, out]`` from ``source [input pixels, in]``."""
    _launch_product(config, source, weight, out, topology.row_offsets, topology.row_slots, topology, problem, True)


def launch_conv_input_grad(
    config: LaunchConfig, source: Tensor, weight: Tensor, out: Tensor, topology: BlockTopology, problem: ConvProblem
) -> None:
    """Fill ``out [input pixels, in]`` from the output gradient ``source [output pixels, out]``."""
    offsets, slots = merge_taps(topology, problem.in_channels // weight.shape[1], problem.taps)
    _launch_product(config, source, weight, out, offsets, slots, topology, problem, False)


def merge_taps(topology: BlockTopology, channel_blocks: int, taps: int) -> tuple[Tensor, Tensor]:
    """Offsets ``[channel_blocks + 1]`` and slots of all blocks that read a channel block, whatever their tap."""
    offsets = torch.empty(channel_blocks + 1, dtype=torch.int32, device=topology.col_slots.device)
    slots = torch.empty_like(topology.col_slots)
    columns = channel_blocks * taps
    launch(
        merge_taps_kernel, channel_blocks, (topology.col_offsets, topology.col_slots, offsets, slots),
        (channel_blocks, columns, taps),
        column_span=next_power_of_two(columns), copy_width=64, num_warps=1,
    )  # fmt: skip
    return offsets, slots


def launch_conv_weight_grad(
    config: LaunchConfig, gradient: Tensor, source: Tensor, out: Tensor, topology: BlockTopology, problem: ConvProblem
) -> None:
    """Fill ``out [nnz, block, block]`` from the output gradient and the input, both ``[pixels, channels]``."""
    if config.kernel == "descriptor":
        _launch_boxed_weight_grad(config, gradient, source, out, topology, problem)
        return
    blocks, block, pixels = out.shape[0], out.shape[1], gradient.shape[0]
    pixels_per_split = ceil_div(ceil_div(pixels, config.splits), config.depth) * config.depth
    splits = ceil_div(pixels, pixels_per_split)
    parts = out if splits == 1 else torch.empty((splits, *out.shape), dtype=torch.float32, device=out.device)
    launch(
        weight_grad_gather_kernel, blocks * splits,
        (
            source, gradient, parts,
            topology.col_offsets, topology.col_slots, topology.block_cols, topology.block_rows,
        ),
        (
            topology.col_offsets.numel() - 1, blocks, blocks, pixels, pixels_per_split,
            problem.in_channels, problem.out_channels, problem.in_channels // block, *problem.sizes,
        ),
        **problem.constants,
        block=block, depth=config.depth, pack=1, owner_span=1, shared_is_input=True, convolution=True,
        wide=config.swap, norms=False, precision=dot_precision(source.dtype),
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    if splits > 1:
        add_splits(parts, out)


def _launch_product(
    config: LaunchConfig,
    source: Tensor,
    weight: Tensor,
    out: Tensor,
    offsets: Tensor,
    slots: Tensor,
    topology: BlockTopology,
    problem: ConvProblem,
    forward: bool,
) -> None:
    groups, block = offsets.numel() - 1, weight.shape[1]
    if config.kernel == "descriptor":
        source_size, target_size = (problem.in_size, problem.out_size)[:: 1 if forward else -1]
        box = pixel_box(config.tile, problem.batch, target_size)
        boxes = [ceil_div(size, part) for size, part in zip((problem.batch, *target_size), box, strict=True)]
        weight_tile = [block, config.depth] if forward else [config.depth, block]
        launch(
            conv_product_descriptor_kernel, groups * boxes[0] * boxes[1] * boxes[2],
            (
                _images(source, problem.batch, source_size, [*box, config.depth]),
                Tiled(weight.view(-1, block), weight_tile),
                _images(out, problem.batch, target_size, [*box, block]),
                offsets, slots, topology.block_rows, topology.block_cols,
            ),
            (groups, problem.in_channels // block, boxes[1], boxes[2], source.shape[1]),
            **problem.unstrided_constants,
            block=block, images=box[0], height=box[1], width=box[2], depth=config.depth, forward=forward,
            swap=config.swap, precision=dot_precision(source.dtype), num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
        return
    sizes = problem.sizes if forward else problem.sizes[2:] + problem.sizes[:2]
    launch(
        conv_product_kernel, groups * ceil_div(out.shape[0], config.tile),
        (source, weight, out, offsets, slots, topology.block_rows, topology.block_cols),
        (groups, out.shape[0], source.shape[1], out.shape[1], problem.in_channels // block, *sizes),
        **problem.constants, block=block, token_tile=config.tile, depth=config.depth, pack=config.pack,
        forward=forward, swap=config.swap, precision=dot_precision(source.dtype),
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


def _launch_boxed_weight_grad(
    config: LaunchConfig, gradient: Tensor, source: Tensor, out: Tensor, topology: BlockTopology, problem: ConvProblem
) -> None:
    blocks, block = out.shape[0], out.shape[1]
    box = pixel_box(config.depth, problem.batch, problem.out_size)
    boxes = [ceil_div(size, part) for size, part in zip((problem.batch, *problem.out_size), box, strict=True)]
    count = boxes[0] * boxes[1] * boxes[2]
    per_split = ceil_div(count, config.splits)
    splits = ceil_div(count, per_split)
    parts = out if splits == 1 else torch.empty((splits, *out.shape), dtype=torch.float32, device=out.device)
    launch(
        conv_weight_grad_descriptor_kernel, blocks * splits,
        (
            _images(gradient, problem.batch, problem.out_size, [*box, block]),
            _images(source, problem.batch, problem.in_size, [*box, block]),
            parts, topology.row_slots, topology.block_rows, topology.block_cols,
        ),
        (blocks, problem.in_channels // block, count, boxes[1], boxes[2], per_split),
        **problem.unstrided_constants,
        block=block, images=box[0], height=box[1], width=box[2], precision=dot_precision(source.dtype),
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    if splits > 1:
        add_splits(parts, out)


def _images(pixels: Tensor, batch: int, size: tuple[int, int], box: list[int]) -> Tiled:
    """``[pixels, channels]`` in boxes of ``[batch, height, width, channels]``."""
    return Tiled(pixels.view(batch, *size, -1), box)


def _unpack_arguments(rest: tuple[Tensor | list[int], ...]) -> tuple[BlockTopology, Conv2dGeometry]:
    """The topology's six tensors and the geometry's four pairs, as the ops pass them."""
    topology = BlockTopology(*cast(tuple[Tensor, ...], rest[:6]))
    return topology, geometry_of(*cast(tuple[list[int], ...], rest[6:]))


def _key(op: str, problem: ConvProblem, topology: BlockTopology, tensor: Tensor, block: int) -> ProblemKey:
    return ProblemKey(
        op,
        problem.out_channels,
        problem.in_channels,
        block,
        str(tensor.dtype),
        dot_precision(tensor.dtype),
        density_bucket(topology.block_rows.numel(), topology.row_offsets.numel() - 1, topology.col_offsets.numel() - 1),
        token_bucket(problem.batch * problem.out_size[0] * problem.out_size[1]),
        problem.text,
    )


def _pixels(shape: list[int]) -> int:
    return shape[0] * shape[2] * shape[3]


def _as_images(pixels: Tensor, shape: list[int], memory_format: torch.memory_format) -> Tensor:
    """``[pixels, channels]`` as ``shape`` = ``[batch, channels, height, width]`` in the asked memory order."""
    batch, channels, height, width = shape
    images = pixels.view(batch, height, width, channels).permute(0, 3, 1, 2)
    return images.contiguous(memory_format=memory_format)
