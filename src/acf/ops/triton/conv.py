"""Launching the three passes of block-sparse 2-D convolutions."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acf.ops import reference
from acf.ops.conv import split_arguments
from acf.ops.reference import grid_cols, grid_rows, memory_format_of
from acf.ops.triton import product
from acf.ops.triton.configs import conv_product_configs, conv_weight_grad_configs
from acf.ops.triton.conv_kernels import (
    conv_product_descriptor_kernel,
    conv_product_kernel,
    conv_weight_grad_descriptor_kernel,
    conv_weight_grad_gather_kernel,
)
from acf.ops.triton.geometry_kernels import merge_taps_kernel
from acf.ops.triton.launch import PreparedLaunch, Tiled, known_launch, launch
from acf.ops.triton.pixels import ConvProblem, pixel_box
from acf.ops.triton.support import DTYPES, ceil_div, dot_precision, next_power_of_two, readable, supports
from acf.ops.triton.tuning import TUNER, LaunchConfig, ProblemKey, density_bucket, token_bucket
from acf.ops.triton.weight_grad import add_splits, linear_weight_grad, split_buffer, split_choices
from acf.sparse import BlockTopology


class ConvWalk(NamedTuple):
    """The order in which a pass visits the blocks: groups of slots, and the block row and column of every slot."""

    offsets: Tensor
    slots: Tensor
    block_rows: Tensor
    block_cols: Tensor

    @property
    def groups(self) -> int:
        """Block rows in the forward pass, blocks of input channels in the input gradient."""
        return self.offsets.shape[0] - 1


class PreparedConv(NamedTuple):
    """The launch of a forward pass or an input gradient, and what else the shapes of its problem determine."""

    launch: PreparedLaunch
    problem: ConvProblem
    shape: list[int]
    memory_format: torch.memory_format
    by_phase: bool = False

    def __call__(self, images: Tensor, weight: Tensor, bias: Tensor | None, *walk: Tensor) -> Tensor | None:
        """The result ``[batch, channels, height, width]``; None where Triton has to launch."""
        out, weight = images.new_empty((_pixels(self.shape), self.shape[1])), weight.contiguous()
        shift = weight if bias is None else bias.contiguous()
        if not self.launch(ConvProblem.pixels_of(images), weight, out, shift, *walk):
            return None
        return as_images(out, self.shape, self.memory_format)


class PreparedConvWeightGrad(NamedTuple):
    """The launches of a weight gradient: its parts, from boxes of pixels or pixel by pixel, and their sum."""

    parts: PreparedLaunch
    total: PreparedLaunch | None
    splits: int
    boxed: bool

    def __call__(self, gradient: Tensor, source: Tensor, out: Tensor, topology: BlockTopology) -> bool:
        """Fill ``out`` from operands ``[pixels, channels]``; False where Triton has to launch."""
        parts = split_buffer(out, self.splits)
        operands = _boxed_operands if self.boxed else _gathered_operands
        if not self.parts(*operands(gradient, source, parts, topology)):
            return False
        return self.total is None or self.total(parts, out)


_PREPARED: dict[Hashable, PreparedConv] = {}
_PREPARED_WEIGHT_GRADS: dict[Hashable, PreparedConvWeightGrad] = {}


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    """`reference.conv2d` on the GPU."""
    if _is_pointwise(rest[6:]):
        return _linear_images(product.linear(ConvProblem.pixels_of(x), weight, bias, *rest[:6]), x)
    signature = problem_signature("forward" if bias is None else f"forward {bias.dtype}", x, weight, rest)
    prepared = known_launch(_PREPARED, signature)
    result = prepared(x, weight, bias, rest[2], rest[3], rest[0], rest[1]) if prepared else None
    return _first_conv2d(x, weight, bias, rest, signature) if result is None else result


def conv2d_input_grad(output_grad: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """`reference.conv2d_input_grad` on the GPU."""
    if _is_pointwise(rest[7:]):
        pixels = ConvProblem.pixels_of(output_grad)
        return _linear_images(product.linear_input_grad(pixels, weight, *rest[:6]), output_grad)
    signature = problem_signature("input_grad", output_grad, weight, rest)
    prepared, result = known_launch(_PREPARED, signature), None
    if prepared:
        problem = prepared.problem
        offsets, slots = merge_taps(rest[4], rest[5], problem, weight.shape[1], prepared.by_phase)
        result = prepared(output_grad, weight, None, offsets, slots, rest[0], rest[1])
    return _first_conv2d_input_grad(output_grad, weight, rest, signature) if result is None else result


def conv2d_weight_grad(output_grad: Tensor, x: Tensor, *arguments: Any) -> Tensor:
    """`reference.conv2d_weight_grad` on the GPU."""
    *rest, dtype = arguments
    if _is_pointwise(rest[6:]):
        gradient, source = ConvProblem.pixels_of(output_grad), ConvProblem.pixels_of(x)
        return linear_weight_grad(gradient, source, *rest[:6], dtype)
    signature = problem_signature(f"weight_grad {dtype}", output_grad, x, rest)
    prepared = _PREPARED_WEIGHT_GRADS.get(signature)
    if prepared:
        block = output_grad.shape[1] // (rest[2].shape[0] - 1)
        out = x.new_empty((rest[0].shape[0], block, block), dtype=dtype)
        gradient, source = ConvProblem.pixels_of(output_grad), ConvProblem.pixels_of(x)
        if prepared(gradient, source, out, BlockTopology(*rest[:6])):
            return out
    return _first_conv2d_weight_grad(output_grad, x, rest, dtype, signature)


def _is_pointwise(pairs: Sequence[list[int]]) -> bool:
    """Whether kernel, stride and padding make the convolution a linear layer over pixels."""
    kernel, stride, padding, _ = pairs
    return kernel == [1, 1] and stride == [1, 1] and padding == [0, 0]


def _linear_images(pixels: Tensor, like: Tensor) -> Tensor:
    """``[pixels, channels]`` as images of the size and memory order of ``like``."""
    shape = [like.shape[0], pixels.shape[1], like.shape[2], like.shape[3]]
    return as_images(pixels, shape, memory_format_of(like))


def problem_signature(op: str, first: Tensor, second: Tensor, rest: Sequence[Any]) -> Hashable:
    """All that the launch of a pass depends on, but the tensors' addresses; memory orders are among it."""
    geometry = tuple(number for pair in rest[6:] for number in pair)
    grid = (rest[0].shape[0], rest[2].shape[0], rest[4].shape[0])
    return (
        op, first.shape, first.stride(), second.shape, second.stride(), grid, geometry,
        first.dtype, second.dtype, dot_precision(first.dtype), first.get_device(),
    )  # fmt: skip


def _first_conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, rest: tuple[Any, ...], signature: Hashable) -> Tensor:
    """The forward pass of a problem that has not been prepared."""
    topology, geometry = split_arguments(rest)
    block = weight.shape[1]
    if not supports((block, weight.shape[2]), x, weight) or x.shape[1] % block:
        return reference.conv2d(x, weight, topology, geometry, bias)
    output_shape = [
        x.shape[0],
        grid_rows(topology) * block,
        *geometry.output_size(x.shape[2], x.shape[3]),
    ]
    problem = ConvProblem.build(list(x.shape), output_shape, geometry)
    source, weight, bias = problem.pixels_of(x), readable(weight), None if bias is None else readable(bias)
    out = torch.empty((_pixels(output_shape), output_shape[1]), dtype=x.dtype, device=x.device)
    config = TUNER.choose(
        signature,
        lambda: problem_key("conv_forward", problem, topology, x, block),
        conv_product_configs(block, x.itemsize, dot_precision(x.dtype), problem.boxed),
        lambda candidate: launch_conv_forward(candidate, source, weight, out, topology, problem, bias),
    )
    prepared = launch_conv_forward(config, source, weight, out, topology, problem, bias)
    if prepared is not None and TUNER.remembers(signature):
        _PREPARED[signature] = PreparedConv(prepared, problem, output_shape, memory_format_of(x))
    return as_images(out, output_shape, memory_format_of(x))


def _first_conv2d_input_grad(output_grad: Tensor, weight: Tensor, rest: tuple[Any, ...], signature: Hashable) -> Tensor:
    """The input gradient of a problem that has not been prepared."""
    input_size = rest[6]
    assert isinstance(input_size, list)
    topology, geometry = split_arguments((*rest[:6], *rest[7:]))
    block = weight.shape[1]
    if not supports((block, weight.shape[2]), output_grad, weight) or input_size[1] % block:
        return reference.conv2d_input_grad(output_grad, weight, topology, input_size, geometry)
    problem = ConvProblem.build(input_size, list(output_grad.shape), geometry)
    source, weight = problem.pixels_of(output_grad), readable(weight)
    out = torch.empty((_pixels(input_size), input_size[1]), dtype=output_grad.dtype, device=output_grad.device)
    config = TUNER.choose(
        signature,
        lambda: problem_key("conv_input_grad", problem, topology, output_grad, block),
        conv_product_configs(block, output_grad.itemsize, dot_precision(output_grad.dtype), problem.boxed),
        lambda candidate: launch_conv_input_grad(candidate, source, weight, out, topology, problem),
    )
    prepared = launch_conv_input_grad(config, source, weight, out, topology, problem)
    if prepared is not None and TUNER.remembers(signature):
        memory_format, by_phase = memory_format_of(output_grad), _by_phase(config, problem)
        _PREPARED[signature] = PreparedConv(prepared, problem, list(input_size), memory_format, by_phase)
    return as_images(out, input_size, memory_format_of(output_grad))


def _first_conv2d_weight_grad(
    output_grad: Tensor, x: Tensor, rest: Sequence[Any], dtype: torch.dtype, signature: Hashable
) -> Tensor:
    """The weight gradient of a problem that has not been prepared."""
    topology, geometry = split_arguments(rest)
    problem = ConvProblem.build(list(x.shape), list(output_grad.shape), geometry)
    block = problem.out_channels // grid_rows(topology)
    width = problem.in_channels * problem.taps // grid_cols(topology)
    blocks = topology.block_rows.numel()
    fits = blocks > 0 and supports((block, width), output_grad, x) and problem.in_channels % block == 0
    if not fits or dtype not in DTYPES:
        return reference.conv2d_weight_grad(output_grad, x, topology, geometry).to(dtype)
    gradient, source = problem.pixels_of(output_grad), problem.pixels_of(x)
    out = torch.empty((blocks, block, block), dtype=dtype, device=x.device)
    config = TUNER.choose(
        signature,
        lambda: problem_key("conv_weight_grad", problem, topology, x, block),
        conv_weight_grad_configs(block, x.itemsize, dot_precision(x.dtype), problem.boxed, split_choices(blocks)),
        lambda candidate: launch_conv_weight_grad(candidate, gradient, source, out, topology, problem),
    )
    prepared = launch_conv_weight_grad(config, gradient, source, out, topology, problem)
    if prepared is not None and TUNER.remembers(signature):
        _PREPARED_WEIGHT_GRADS[signature] = prepared
    return out


def launch_conv_forward(
    config: LaunchConfig,
    source: Tensor,
    weight: Tensor,
    out: Tensor,
    topology: BlockTopology,
    problem: ConvProblem,
    bias: Tensor | None = None,
) -> PreparedLaunch | None:
    """Fill ``out [output pixels, out]`` from ``source [input pixels, in]``, and add ``bias [out]``."""
    walk = ConvWalk(topology.row_offsets, topology.row_slots, topology.block_rows, topology.block_cols)
    return _launch_product(config, source, (weight, bias), out, walk, problem, True)


def launch_conv_input_grad(
    config: LaunchConfig, source: Tensor, weight: Tensor, out: Tensor, topology: BlockTopology, problem: ConvProblem
) -> PreparedLaunch | None:
    """Fill ``out [input pixels, in]`` from the output gradient ``source [output pixels, out]``."""
    by_phase = _by_phase(config, problem)
    offsets, slots = merge_taps(topology.col_offsets, topology.col_slots, problem, weight.shape[1], by_phase)
    walk = ConvWalk(offsets, slots, topology.block_rows, topology.block_cols)
    return _launch_product(config, source, (weight, None), out, walk, problem, False)


def _by_phase(config: LaunchConfig, problem: ConvProblem) -> bool:
    """Whether the input gradient is computed one phase of a strided convolution at a time."""
    return config.kernel == "descriptor" and problem.phases > 1


def merge_taps(
    col_offsets: Tensor, col_slots: Tensor, problem: ConvProblem, block: int, by_phase: bool = False
) -> tuple[Tensor, Tensor]:
    """Offsets ``[groups + 1]`` and slots of all blocks that read a channel block, whatever their tap.

    A group is a channel block, or with ``by_phase`` a phase and a channel block.
    """
    channel_blocks, taps = problem.in_channels // block, problem.taps
    groups, columns = channel_blocks * (problem.phases if by_phase else 1), channel_blocks * taps
    offsets = col_offsets.new_empty(groups + 1)
    slots = torch.empty_like(col_slots)
    launch(
        merge_taps_kernel, groups, (col_offsets, col_slots, offsets, slots),
        (channel_blocks, columns, taps),
        geometry=problem.constants, by_phase=by_phase,
        column_span=next_power_of_two(columns), copy_width=64, num_warps=1,
    )  # fmt: skip
    return offsets, slots


def launch_conv_weight_grad(
    config: LaunchConfig, gradient: Tensor, source: Tensor, out: Tensor, topology: BlockTopology, problem: ConvProblem
) -> PreparedConvWeightGrad | None:
    """Fill ``out [nnz, block, block]`` from the output gradient and the input, both ``[pixels, channels]``."""
    boxed = config.kernel == "descriptor"
    start = _launch_boxed_weight_grad if boxed else _launch_gathered_weight_grad
    prepared, splits, parts = start(config, gradient, source, out, topology, problem)
    total = add_splits(parts, out) if splits > 1 else None
    if prepared is None or (splits > 1 and total is None):
        return None
    return PreparedConvWeightGrad(prepared, total, splits, boxed)


def _gathered_operands(gradient: Tensor, source: Tensor, parts: Tensor, topology: BlockTopology) -> tuple[Tensor, ...]:
    walk = (topology.col_offsets, topology.col_slots, topology.block_cols, topology.block_rows)
    return (source, gradient, parts, *walk)


def _boxed_operands(gradient: Tensor, source: Tensor, parts: Tensor, topology: BlockTopology) -> tuple[Tensor, ...]:
    return (gradient, source, parts, topology.row_slots, topology.block_rows, topology.block_cols)


def _launch_gathered_weight_grad(
    config: LaunchConfig, gradient: Tensor, source: Tensor, out: Tensor, topology: BlockTopology, problem: ConvProblem
) -> tuple[PreparedLaunch | None, int, Tensor]:
    """The launch of the parts, their number, and where they are."""
    blocks, block, pixels = out.shape[0], out.shape[1], gradient.shape[0]
    pixels_per_split = ceil_div(ceil_div(pixels, config.splits), config.depth) * config.depth
    splits = ceil_div(pixels, pixels_per_split)
    parts = split_buffer(out, splits)
    prepared = launch(
        conv_weight_grad_gather_kernel, blocks * splits, _gathered_operands(gradient, source, parts, topology),
        (
            grid_cols(topology), blocks, blocks, pixels, pixels_per_split,
            problem.in_channels, problem.out_channels, problem.in_channels // block, *problem.sizes,
        ),
        geometry=problem.constants, block=block, depth=config.depth, pack=1, owner_span=1, wide=config.swap,
        norms=False, precision=dot_precision(source.dtype),
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    return prepared, splits, parts


def _launch_product(
    config: LaunchConfig,
    source: Tensor,
    parameters: tuple[Tensor, Tensor | None],
    out: Tensor,
    walk: ConvWalk,
    problem: ConvProblem,
    forward: bool,
) -> PreparedLaunch | None:
    """One product with the weight and the bias, if any, that are ``parameters``."""
    weight, bias = parameters
    groups, block, shift = walk.groups, weight.shape[1], weight if bias is None else bias
    if config.kernel == "descriptor":
        target_size = problem.out_size if forward else problem.phase_size
        box = pixel_box(config.tile, problem.batch, target_size)
        describe_source, describe_out = (tiled_inputs, tiled_outputs) if forward else (tiled_outputs, tiled_inputs)
        boxes = [ceil_div(size, part) for size, part in zip((problem.batch, *target_size), box, strict=True)]
        weight_tile = [block, config.depth] if forward else [config.depth, block]
        return launch(
            conv_product_descriptor_kernel, groups * boxes[0] * boxes[1] * boxes[2],
            (
                describe_source(source, problem, box, config.depth),
                Tiled(weight.view(-1, block), weight_tile),
                describe_out(out, problem, box, block),
                shift, *walk,
            ),
            (groups, problem.in_channels // block, boxes[1], boxes[2]),
            geometry=problem.constants, block=block, images=box[0], height=box[1], width=box[2], depth=config.depth,
            forward=forward, swap=config.swap, has_bias=bias is not None, precision=dot_precision(source.dtype),
            num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    sizes = problem.sizes if forward else problem.sizes[2:] + problem.sizes[:2]
    return launch(
        conv_product_kernel, groups * ceil_div(out.shape[0], config.tile),
        (source, weight, out, shift, *walk),
        (groups, out.shape[0], source.shape[1], out.shape[1], problem.in_channels // block, *sizes),
        geometry=problem.constants, block=block, token_tile=config.tile, depth=config.depth, pack=config.pack,
        forward=forward, swap=config.swap, has_bias=bias is not None, precision=dot_precision(source.dtype),
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


def _launch_boxed_weight_grad(
    config: LaunchConfig, gradient: Tensor, source: Tensor, out: Tensor, topology: BlockTopology, problem: ConvProblem
) -> tuple[PreparedLaunch | None, int, Tensor]:
    """The launch of the parts, their number, and where they are."""
    blocks, block = out.shape[0], out.shape[1]
    box = pixel_box(config.depth, problem.batch, problem.out_size)
    boxes = [ceil_div(size, part) for size, part in zip((problem.batch, *problem.out_size), box, strict=True)]
    count = boxes[0] * boxes[1] * boxes[2]
    per_split = ceil_div(count, config.splits)
    splits = ceil_div(count, per_split)
    parts = split_buffer(out, splits)
    gradient, source, *rest = _boxed_operands(gradient, source, parts, topology)
    prepared = launch(
        conv_weight_grad_descriptor_kernel, blocks * splits,
        (
            tiled_outputs(gradient, problem, box, block),
            tiled_inputs(source, problem, box, block),
            *rest,
        ),
        (blocks, problem.in_channels // block, count, boxes[1], boxes[2], per_split),
        geometry=problem.constants, block=block, images=box[0], height=box[1], width=box[2],
        precision=dot_precision(source.dtype), num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    return prepared, splits, parts


def tiled_outputs(pixels: Tensor, problem: ConvProblem, box: tuple[int, int, int], channels: int) -> Tiled:
    """Output pixels ``[pixels, out]`` in boxes of ``[batch, height, width, out]``."""
    return Tiled(pixels.view(problem.batch, *problem.out_size, -1), [*box, channels])


def tiled_inputs(pixels: Tensor, problem: ConvProblem, box: tuple[int, int, int], channels: int) -> Tiled:
    """Input pixels ``[pixels, in]`` in boxes of one phase, ``[batch, height, phases, width, phases * in]``.

    Stride 1, which has one phase, is described as `tiled_outputs` are.
    """
    if problem.phases == 1:
        return Tiled(pixels.view(problem.batch, *problem.in_size, -1), [*box, channels])
    (height, width), (stride_y, stride_x) = problem.phase_size, problem.geometry.stride
    by_phase = pixels.view(problem.batch, height, stride_y, width, stride_x * problem.in_channels)
    return Tiled(by_phase, [box[0], box[1], 1, box[2], channels])


def problem_key(op: str, problem: ConvProblem, topology: BlockTopology, tensor: Tensor, block: int) -> ProblemKey:
    """The key under which the launch configuration of ``op`` is kept."""
    return ProblemKey(
        op,
        problem.out_channels,
        problem.in_channels,
        block,
        str(tensor.dtype),
        dot_precision(tensor.dtype),
        density_bucket(topology.block_rows.numel(), grid_rows(topology), grid_cols(topology)),
        token_bucket(problem.batch * problem.out_size[0] * problem.out_size[1]),
        problem.text,
    )


def _pixels(shape: list[int]) -> int:
    return shape[0] * shape[2] * shape[3]


def as_images(pixels: Tensor, shape: list[int], memory_format: torch.memory_format) -> Tensor:
    """``[pixels, channels]`` as ``shape`` = ``[batch, channels, height, width]`` in the asked memory order."""
    batch, channels, height, width = shape
    images = pixels.view(batch, height, width, channels).permute(0, 3, 1, 2)
    return images.contiguous(memory_format=memory_format)
