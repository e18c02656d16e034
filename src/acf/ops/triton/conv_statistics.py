"""Launching convolutions that also give the mean and the variance of every output channel."""

from collections.abc import Hashable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acf.ops import reference
from acf.ops.conv import split_arguments
from acf.ops.reference import grid_rows, memory_format_of
from acf.ops.triton.configs import conv_statistics_configs
from acf.ops.triton.conv import as_images, conv2d, problem_key, problem_signature, tiled_inputs, tiled_outputs
from acf.ops.triton.launch import PreparedLaunch, Tiled, known_launch, launch
from acf.ops.triton.pixels import ConvProblem, pixel_box
from acf.ops.triton.statistics_kernels import (
    combine_statistics_kernel,
    conv_statistics_kernel,
    tile_statistics_kernel,
)
from acf.ops.triton.support import ceil_div, dot_precision, next_power_of_two, readable, supports
from acf.ops.triton.tuning import TUNER, LaunchConfig
from acf.sparse import BlockTopology

PIXEL_TILE = 128
"""Pixels of a tile where statistics are taken of an output in memory."""

COMBINED_ROWS, COMBINED_CHANNELS = 1024, 8
"""Most boxes, and channels, that a program combines at a time: 8 channels are a sector of 32 bytes, the least read."""

Results = tuple[Tensor, Tensor, Tensor]
"""Output, mean and biased variance; the statistics are float32 ``[channels]``."""


@dataclass(frozen=True)
class Cover:
    """Boxes that cover ``extent``: images, rows and columns of pixels, as all numbers here."""

    extent: tuple[int, int, int]
    box: tuple[int, int, int]

    @classmethod
    def of_output(cls, problem: ConvProblem, pixels: int) -> "Cover":
        """Boxes of ``pixels`` over the output of a convolution."""
        box = pixel_box(pixels, problem.batch, problem.out_size)
        return cls((problem.batch, *problem.out_size), box)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Boxes along each axis."""
        images, rows, cols = (ceil_div(size, part) for size, part in zip(self.extent, self.box, strict=True))
        return images, rows, cols

    @property
    def boxes(self) -> int:
        """Boxes in all."""
        return prod(self.counts)

    @property
    def whole(self) -> bool:
        """Whether no box reaches beyond the extent."""
        return self.boxes * prod(self.box) == prod(self.extent)


class PreparedConvStatistics(NamedTuple):
    """The launches of one problem: the product, and the combination of its boxes."""

    product: PreparedLaunch
    combination: PreparedLaunch
    boxes: int
    shape: list[int]
    memory_format: torch.memory_format

    def __call__(self, images: Tensor, weight: Tensor, bias: Tensor | None, *walk: Tensor) -> Results | None:
        """The results for ``images [batch, in, height, width]``; None where Triton has to launch."""
        (batch, channels, height, width), weight = self.shape, weight.contiguous()
        out, shift = images.new_empty((batch * height * width, channels)), weight if bias is None else bias.contiguous()
        partials, mean, variance = _partials(images, self.boxes, channels), *_statistics(images, channels)
        if not self.product(ConvProblem.pixels_of(images), weight, out, shift, partials, *walk):
            return None
        if not self.combination(partials, mean, variance):
            return None
        return as_images(out, self.shape, self.memory_format), mean, variance


_PREPARED: dict[Hashable, PreparedConvStatistics] = {}


def conv2d_statistics(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Results:
    """`reference.conv2d_statistics` on the GPU."""
    signature = problem_signature("statistics" if bias is None else f"statistics {bias.dtype}", x, weight, rest)
    prepared = known_launch(_PREPARED, signature)
    results = prepared(x, weight, bias, rest[2], rest[3], rest[0], rest[1]) if prepared else None
    return _first_conv2d_statistics(x, weight, bias, rest, signature) if results is None else results


def _first_conv2d_statistics(
    x: Tensor, weight: Tensor, bias: Tensor | None, rest: tuple[Any, ...], signature: Hashable
) -> Results:
    """The results of a problem that has not been prepared."""
    topology, geometry = split_arguments(rest)
    block = weight.shape[1]
    if not supports((block, weight.shape[2]), x, weight) or x.shape[1] % block:
        return reference.conv2d_statistics(x, weight, topology, geometry, bias)
    shape = [x.shape[0], grid_rows(topology) * block, *geometry.output_size(x.shape[2], x.shape[3])]
    problem = ConvProblem.build(list(x.shape), shape, geometry)
    results = (x.new_empty((shape[0] * shape[2] * shape[3], shape[1])), *_statistics(x, shape[1]))
    operands = problem.pixels_of(x), readable(weight), None if bias is None else readable(bias)
    config = TUNER.choose(
        signature,
        lambda: problem_key("conv_statistics", problem, topology, x, block),
        conv_statistics_configs(block, x.itemsize, dot_precision(x.dtype), problem.boxed),
        lambda candidate: (
            _separately(x, weight, bias, rest)
            if candidate.kernel == "separate"
            else launch_conv_statistics(candidate, operands, results, topology, problem)
        ),
    )
    if config.kernel == "separate":
        return _separately(x, weight, bias, rest)
    launches = launch_conv_statistics(config, operands, results, topology, problem)
    if None not in launches and TUNER.remembers(signature):
        boxes = Cover.of_output(problem, config.tile).boxes
        _PREPARED[signature] = PreparedConvStatistics(*launches, boxes, shape, memory_format_of(x))  # type: ignore[arg-type]
    return as_images(results[0], shape, memory_format_of(x)), *results[1:]


def _separately(x: Tensor, weight: Tensor, bias: Tensor | None, rest: tuple[Any, ...]) -> Results:
    """The convolution, then the statistics of what it stored."""
    y = conv2d(x, weight, bias, *rest)
    mean, variance = pixel_statistics(ConvProblem.pixels_of(y))
    return y, mean, variance


def pixel_statistics(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of every channel of contiguous ``pixels [pixels, channels]``."""
    count, channels = pixels.shape
    cover = Cover((1, 1, count), (1, 1, PIXEL_TILE))
    partials, (mean, variance) = _partials(pixels, cover.boxes, channels), _statistics(pixels, channels)
    channel_tile = 64 if channels % 64 == 0 else 16
    launch(
        tile_statistics_kernel, cover.boxes * (channels // channel_tile), (pixels, partials), (count, channels),
        tile=PIXEL_TILE, channel_tile=channel_tile, whole=cover.whole, num_warps=4,
    )  # fmt: skip
    _combine(partials, mean, variance, cover)
    return mean, variance


def launch_conv_statistics(
    config: LaunchConfig,
    operands: tuple[Tensor, Tensor, Tensor | None],
    results: Results,
    topology: BlockTopology,
    problem: ConvProblem,
) -> tuple[PreparedLaunch | None, PreparedLaunch | None]:
    """Fill ``results``, the output ``[pixels, out]``, from x ``[input pixels, in]``, the packed weight and the bias."""
    (source, weight, bias), (out, mean, variance) = operands, results
    block, groups, cover = weight.shape[1], grid_rows(topology), Cover.of_output(problem, config.tile)
    partials, counts = _partials(source, cover.boxes, out.shape[1]), cover.counts
    product = launch(
        conv_statistics_kernel, groups * cover.boxes,
        (
            tiled_inputs(source, problem, cover.box, config.depth),
            Tiled(weight.view(-1, block), [block, config.depth]),
            tiled_outputs(out, problem, cover.box, block),
            weight if bias is None else bias, partials,
            topology.row_offsets, topology.row_slots, topology.block_rows, topology.block_cols,
        ),
        (groups, problem.in_channels // block, *cover.extent, counts[1], counts[2]),
        geometry=problem.constants, block=block, images=cover.box[0], height=cover.box[1], width=cover.box[2],
        depth=config.depth, swap=config.swap, has_bias=bias is not None, whole=cover.whole,
        precision=dot_precision(source.dtype), num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    return product, _combine(partials, mean, variance, cover)


def _combine(partials: Tensor, mean: Tensor, variance: Tensor, cover: Cover) -> PreparedLaunch | None:
    channels, (_, rows, cols) = mean.shape[0], cover.counts
    return launch(
        combine_statistics_kernel, channels // COMBINED_CHANNELS, (partials, mean, variance),
        (cover.boxes, channels, *cover.extent, rows, cols),
        images=cover.box[0], height=cover.box[1], width=cover.box[2],
        rows=min(COMBINED_ROWS, next_power_of_two(cover.boxes)), channel_tile=COMBINED_CHANNELS, num_warps=8,
    )  # fmt: skip


def _partials(like: Tensor, boxes: int, channels: int) -> Tensor:
    return like.new_empty((boxes, 2, channels), dtype=torch.float32)


def _statistics(like: Tensor, channels: int) -> tuple[Tensor, Tensor]:
    return like.new_empty(channels, dtype=torch.float32), like.new_empty(channels, dtype=torch.float32)
