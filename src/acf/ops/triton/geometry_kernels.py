"""Device functions of implicit GEMM: the pixel that a kernel tap reads, and the blocks of a channel over all taps.

A kernel takes the geometry of its convolution as one constexpr tuple, in the order of the indices below.
"""

import triton.language as tl

from acf.ops.triton.jit import jit

KERNEL_WIDTH: tl.constexpr = tl.constexpr(0)
STRIDE_Y: tl.constexpr = tl.constexpr(1)
STRIDE_X: tl.constexpr = tl.constexpr(2)
PADDING_Y: tl.constexpr = tl.constexpr(3)
PADDING_X: tl.constexpr = tl.constexpr(4)
DILATION_Y: tl.constexpr = tl.constexpr(5)
DILATION_X: tl.constexpr = tl.constexpr(6)


@jit
def split_pixel(positions: tl.tensor, height: tl.tensor, width: tl.tensor) -> tl.tensor:
    """Image, row and column of flat pixel numbers ``positions`` of images ``height`` x ``width``."""
    plane = height * width
    image, pixel = positions // plane, positions % plane
    return image, pixel // width, pixel % width


@jit
def input_pixel(
    image: tl.tensor,
    row: tl.tensor,
    col: tl.tensor,
    tap: tl.tensor,
    in_height: tl.tensor,
    in_width: tl.tensor,
    geometry: tl.constexpr,
) -> tl.tensor:
    """Flat input pixel that ``tap`` reads for output pixel ``(image, row, col)``, and whether it exists."""
    y = row * geometry[STRIDE_Y] - geometry[PADDING_Y] + (tap // geometry[KERNEL_WIDTH]) * geometry[DILATION_Y]
    x = col * geometry[STRIDE_X] - geometry[PADDING_X] + (tap % geometry[KERNEL_WIDTH]) * geometry[DILATION_X]
    inside = (y >= 0) & (y < in_height) & (x >= 0) & (x < in_width)
    return (image * in_height + y) * in_width + x, inside


@jit
def output_pixel(
    image: tl.tensor,
    row: tl.tensor,
    col: tl.tensor,
    tap: tl.tensor,
    out_height: tl.tensor,
    out_width: tl.tensor,
    geometry: tl.constexpr,
) -> tl.tensor:
    """Flat output pixel into which ``tap`` carries input pixel ``(image, row, col)``, and whether it exists."""
    y = row + geometry[PADDING_Y] - (tap // geometry[KERNEL_WIDTH]) * geometry[DILATION_Y]
    x = col + geometry[PADDING_X] - (tap % geometry[KERNEL_WIDTH]) * geometry[DILATION_X]
    inside = (y >= 0) & (x >= 0) & (y % geometry[STRIDE_Y] == 0) & (x % geometry[STRIDE_X] == 0)
    y, x = y // geometry[STRIDE_Y], x // geometry[STRIDE_X]
    inside = inside & (y < out_height) & (x < out_width)
    return (image * out_height + y) * out_width + x, inside


@jit
def tap_shift(tap: tl.tensor, geometry: tl.constexpr) -> tl.tensor:
    """What ``tap`` adds to an output pixel to find its input pixel: rows, columns, vertical and horizontal phase.

    Input pixel ``(y, x)`` is ``(y // stride, x // stride)`` of phase ``(y % stride, x % stride)``. A tap reads pixels
    of one phase only, so a strided convolution is stride 1 within each phase. Stride 1 has phase 0 alone.
    """
    y = (tap // geometry[KERNEL_WIDTH]) * geometry[DILATION_Y] + geometry[PADDING_Y] * (geometry[STRIDE_Y] - 1)
    x = (tap % geometry[KERNEL_WIDTH]) * geometry[DILATION_X] + geometry[PADDING_X] * (geometry[STRIDE_X] - 1)
    down, right = y // geometry[STRIDE_Y] - geometry[PADDING_Y], x // geometry[STRIDE_X] - geometry[PADDING_X]
    return down, right, y % geometry[STRIDE_Y], x % geometry[STRIDE_X]


@jit
def tap_phase(tap: tl.tensor, geometry: tl.constexpr) -> tl.tensor:
    """The number of the phase that ``tap`` reads, rows of phases first."""
    _, _, phase_y, phase_x = tap_shift(tap, geometry)
    return phase_y * geometry[STRIDE_X] + phase_x


@jit
def merge_taps_kernel(
    col_offsets: tl.tensor,
    col_slots: tl.tensor,
    merged_offsets: tl.tensor,
    merged_slots: tl.tensor,
    channel_blocks: tl.tensor,
    block_columns: tl.tensor,
    taps: tl.tensor,
    geometry: tl.constexpr,
    by_phase: tl.constexpr,
    column_span: tl.constexpr,
    copy_width: tl.constexpr,
) -> None:
    """Regroup the block-CSC walk by input-channel block: one list over all taps, as the input gradient needs it.

    ``by_phase`` makes one such list for every phase of a strided convolution, with the taps that write it.
    """
    group = tl.program_id(0)
    columns = tl.arange(0, column_span)
    inside = columns < block_columns
    order = columns % channel_blocks
    if by_phase:
        order += tap_phase(columns // channel_blocks, geometry) * channel_blocks
    counts = tl.load(col_offsets + columns + 1, mask=inside, other=0) - tl.load(
        col_offsets + columns, mask=inside, other=0
    )
    target = tl.sum(tl.where(order < group, counts, 0), 0)
    tl.store(merged_offsets + group, target)
    lanes = tl.arange(0, copy_width)
    for tap in range(taps):
        column = tap * channel_blocks + group % channel_blocks
        begin = tl.load(col_offsets + column)
        end = tl.load(col_offsets + column + 1)
        if by_phase:
            end = tl.where(tap_phase(tap, geometry) == group // channel_blocks, end, begin)
        for start in range(begin, end, copy_width):
            present = start + lanes < end
            slot = tl.load(col_slots + start + lanes, mask=present, other=0)
            tl.store(merged_slots + target + (start - begin) + lanes, slot, mask=present)
        target += end - begin
    if group == tl.num_programs(0) - 1:
        tl.store(merged_offsets + group + 1, target)
