"""The block-sparse 2-D convolution as implicit GEMM over pixels, channels innermost.

As in the linear product, one kernel serves the forward pass (a group is a block row) and the input gradient (a
group is a block of input channels over all taps). A block's column gives the tap, and the tap the pixels to read.
"""

import triton.language as tl

from acf.ops.triton.geometry_kernels import STRIDE_X, STRIDE_Y, input_pixel, output_pixel, split_pixel, tap_shift
from acf.ops.triton.jit import jit
from acf.ops.triton.product_kernels import add_bias, multiply
from acf.ops.triton.weight_grad_kernels import gathered_columns, store_blocks, store_norms, take_blocks


@jit
def conv_product_kernel(
    source: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    bias: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    block_rows: tl.tensor,
    block_cols: tl.tensor,
    groups: tl.tensor,
    pixels: tl.tensor,
    source_channels: tl.tensor,
    out_channels: tl.tensor,
    channel_blocks: tl.tensor,
    source_height: tl.tensor,
    source_width: tl.tensor,
    target_height: tl.tensor,
    target_width: tl.tensor,
    geometry: tl.constexpr,
    block: tl.constexpr,
    token_tile: tl.constexpr,
    depth: tl.constexpr,
    pack: tl.constexpr,
    forward: tl.constexpr,
    swap: tl.constexpr,
    has_bias: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """``out [pixels, out_channels]`` from ``source [source pixels, source_channels]`` and packed ``weight``.

    ``bias [out_channels]`` is added with ``has_bias``, which the input gradient never has.
    """
    group = tl.program_id(0) % groups
    positions = (tl.program_id(0) // groups) * token_tile + tl.arange(0, token_tile)
    image, row, col = split_pixel(positions, target_height, target_width)
    inner_lanes = tl.arange(0, depth)
    output_lanes = tl.arange(0, block)
    chunks: tl.constexpr = block // depth
    begin = tl.load(offsets + group) * chunks
    end = tl.load(offsets + group + 1) * chunks
    if swap:
        accumulator = tl.zeros((block, token_tile), dtype=tl.float32)
    else:
        accumulator = tl.zeros((token_tile, block), dtype=tl.float32)
    for start in range(begin, end, pack):
        for part in tl.static_range(pack):
            step = start + part
            present = step < end
            inner = (step % chunks) * depth
            slot = tl.load(slots + step // chunks, mask=present, other=0)
            block_row = tl.load(block_rows + slot)
            block_col = tl.load(block_cols + slot)
            tap = block_col // channel_blocks
            if forward:
                channel = (block_col % channel_blocks) * block + inner
                pixel, inside = input_pixel(image, row, col, tap, source_height, source_width, geometry)
            else:
                channel = block_row * block + inner
                pixel, inside = output_pixel(image, row, col, tap, source_height, source_width, geometry)
            inside = inside & (positions < pixels) & present
            tile = tl.load(
                source + (pixel.to(tl.int64) * source_channels)[:, None] + (channel + inner_lanes)[None, :],
                mask=inside[:, None],
                other=0.0,
            )
            packed_block = weight + slot.to(tl.int64) * (block * block)
            if forward:
                weight_tile = tl.load(packed_block + output_lanes[:, None] * block + (inner + inner_lanes)[None, :])
            else:
                weight_tile = tl.load(packed_block + (inner + inner_lanes)[:, None] * block + output_lanes[None, :])
            if pack > 1:
                weight_tile = tl.where(present, weight_tile, tl.zeros_like(weight_tile))
            accumulator = multiply(tile, weight_tile, accumulator, forward, swap, precision)
    if has_bias:
        accumulator = add_bias(accumulator, bias, group * block, block, swap)
    result = accumulator.to(out.dtype.element_ty)
    if swap:
        result = result.T
    target = out + (positions.to(tl.int64) * out_channels)[:, None] + (group * block + output_lanes)[None, :]
    tl.store(target, result, mask=(positions < pixels)[:, None])


@jit
def sum_taps(
    source: tl.tensor,
    weight: tl.tensor,
    slots: tl.tensor,
    block_rows: tl.tensor,
    block_cols: tl.tensor,
    begin: tl.tensor,
    end: tl.tensor,
    image: tl.tensor,
    top: tl.tensor,
    left: tl.tensor,
    channel_blocks: tl.tensor,
    geometry: tl.constexpr,
    block: tl.constexpr,
    pixels: tl.constexpr,
    depth: tl.constexpr,
    forward: tl.constexpr,
    swap: tl.constexpr,
    precision: tl.constexpr,
) -> tl.tensor:
    """Products of one group, k-steps ``begin`` to ``end``, for the box of ``pixels`` at ``(image, top, left)``.

    Operands are the descriptors of `conv_product_descriptor_kernel`. Float32 ``[pixels, block]``, transposed with
    ``swap``.
    """
    strided: tl.constexpr = geometry[STRIDE_Y] * geometry[STRIDE_X] > 1
    chunks: tl.constexpr = block // depth
    accumulator = tl.zeros((block, pixels), dtype=tl.float32) if swap else tl.zeros((pixels, block), dtype=tl.float32)
    slot = tl.load(slots + begin // chunks, mask=begin < end, other=0)
    block_row, block_col = tl.load(block_rows + slot), tl.load(block_cols + slot)
    for step in range(begin, end):
        inner = (step % chunks) * depth
        down, right, phase_y, phase_x = tap_shift(block_col // channel_blocks, geometry)
        if forward:
            channel = (block_col % channel_blocks) * block + inner
            if strided:
                channel += phase_x * channel_blocks * block
                tile = source.load([image, top + down, phase_y, left + right, channel])
            else:
                tile = source.load([image, top + down, left + right, channel])
            weight_tile = weight.load([slot * block, inner])
        else:
            tile = source.load([image, top - down, left - right, block_row * block + inner])
            weight_tile = weight.load([slot * block + inner, 0])
        tile = tl.reshape(tile, (pixels, depth))
        accumulator = multiply(tile, weight_tile, accumulator, forward, swap, precision)
        slot = tl.load(slots + (step + 1) // chunks, mask=step + 1 < end, other=0)
        block_row, block_col = tl.load(block_rows + slot), tl.load(block_cols + slot)
    return accumulator


@jit
def conv_product_descriptor_kernel(
    source: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    bias: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    block_rows: tl.tensor,
    block_cols: tl.tensor,
    groups: tl.tensor,
    channel_blocks: tl.tensor,
    boxes_y: tl.tensor,
    boxes_x: tl.tensor,
    geometry: tl.constexpr,
    block: tl.constexpr,
    images: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    depth: tl.constexpr,
    forward: tl.constexpr,
    swap: tl.constexpr,
    has_bias: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """The same with operands as descriptors ``[batch, height, width, channels]``.

    A tap moves a box of ``images`` x ``height`` x ``width`` pixels as a whole, and pixels outside an image read
    zeros, so there is neither a pixel's address nor a mask to compute. With a stride the input (or its gradient) is
    described as ``[batch, height / stride, stride, width / stride, stride * channels]``, in which a box of one phase
    is contiguous too; the input gradient has a group for each phase and block of channels.
    """
    group = tl.program_id(0) % groups
    strided: tl.constexpr = geometry[STRIDE_Y] * geometry[STRIDE_X] > 1
    box = tl.program_id(0) // groups
    left = (box % boxes_x) * width
    top = ((box // boxes_x) % boxes_y) * height
    image = (box // (boxes_x * boxes_y)) * images
    pixels: tl.constexpr = images * height * width
    chunks: tl.constexpr = block // depth
    begin = tl.load(offsets + group) * chunks
    end = tl.load(offsets + group + 1) * chunks
    accumulator = sum_taps(
        source, weight, slots, block_rows, block_cols, begin, end, image, top, left, channel_blocks,
        geometry, block, pixels, depth, forward, swap, precision,
    )  # fmt: skip
    if has_bias:
        accumulator = add_bias(accumulator, bias, group * block, block, swap)
    result = accumulator.to(out.dtype)
    if swap:
        result = result.T
    if strided and not forward:
        phase, channel = group // channel_blocks, (group % channel_blocks) * block
        channel += (phase % geometry[STRIDE_X]) * channel_blocks * block
        result = tl.reshape(result, (images, height, 1, width, block))
        out.store([image, top, phase // geometry[STRIDE_X], left, channel], result)
    else:
        out.store([image, top, left, group * block], tl.reshape(result, (images, height, width, block)))


@jit
def conv_weight_grad_gather_kernel(
    x: tl.tensor,
    output_grad: tl.tensor,
    out: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    block_cols: tl.tensor,
    block_rows: tl.tensor,
    owners: tl.tensor,
    works: tl.tensor,
    blocks: tl.tensor,
    pixels: tl.tensor,
    pixels_per_split: tl.tensor,
    in_channels: tl.tensor,
    out_channels: tl.tensor,
    channel_blocks: tl.tensor,
    in_height: tl.tensor,
    in_width: tl.tensor,
    out_height: tl.tensor,
    out_width: tl.tensor,
    geometry: tl.constexpr,
    block: tl.constexpr,
    depth: tl.constexpr,
    pack: tl.constexpr,
    owner_span: tl.constexpr,
    wide: tl.constexpr,
    norms: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """`weight_grad_gather_kernel` for a convolution: ``pack`` blocks of one block column over one split of the pixels.

    The blocks of a column share x ``[input pixels, in_channels]``, shifted by the column's tap, and gather the output
    gradient ``[pixels, out_channels]``. ``out``, ``wide`` and ``norms`` are as in the linear kernel.
    """
    work = tl.program_id(0) % works
    split = tl.program_id(0) // works
    owner, first, end, slot, present = take_blocks(offsets, slots, block_cols, owners, work, block, pack, owner_span)
    if pack > 1:  # noqa: SIM102 (a constexpr: Triton drops the branch)
        if owner >= owners:
            return
    columns = gathered_columns(block_rows, slot, present, block, pack)
    tap = owner // channel_blocks
    channels = (owner % channel_blocks) * block + tl.arange(0, block)
    if wide:
        accumulator = tl.zeros((block, pack * block), dtype=tl.float32)
    else:
        accumulator = tl.zeros((pack * block, block), dtype=tl.float32)
    split_begin = split * pixels_per_split
    split_end = tl.minimum(split_begin + pixels_per_split, pixels)
    first_rows = split_begin + tl.arange(0, depth).to(tl.int64)
    gradient_pointers = output_grad + (first_rows * out_channels)[:, None] + columns[None, :]
    for start in range(split_begin, split_end, depth):
        positions = start + tl.arange(0, depth)
        inside = positions < split_end
        gradient_tile = tl.load(gradient_pointers, mask=inside[:, None] & present[None, :], other=0.0)
        gradient_pointers += depth * out_channels
        image, row, col = split_pixel(positions, out_height, out_width)
        pixel, exists = input_pixel(image, row, col, tap, in_height, in_width, geometry)
        x_pointers = x + (pixel.to(tl.int64) * in_channels)[:, None] + channels[None, :]
        x_tile = tl.load(x_pointers, mask=(inside & exists)[:, None], other=0.0)
        if wide:
            accumulator = tl.dot(x_tile.T, gradient_tile, accumulator, input_precision=precision)
        else:
            accumulator = tl.dot(gradient_tile.T, x_tile, accumulator, input_precision=precision)
    if norms:
        store_norms(accumulator, out, slots, first, end, block, pack, wide)
        return
    store_blocks(accumulator, out, slot, present, split.to(tl.int64) * blocks, block, pack, True, wide)


@jit
def conv_weight_grad_descriptor_kernel(
    output_grad: tl.tensor,
    x: tl.tensor,
    out: tl.tensor,
    slots: tl.tensor,
    block_rows: tl.tensor,
    block_cols: tl.tensor,
    blocks: tl.tensor,
    channel_blocks: tl.tensor,
    boxes: tl.tensor,
    boxes_y: tl.tensor,
    boxes_x: tl.tensor,
    boxes_per_split: tl.tensor,
    geometry: tl.constexpr,
    block: tl.constexpr,
    images: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """One gradient block over one split of the pixel boxes; ``out [splits, blocks, block, block]``.

    With a stride, x is described as in `conv_product_descriptor_kernel`.
    """
    slot = tl.load(slots + tl.program_id(0) % blocks)
    split = tl.program_id(0) // blocks
    row = tl.load(block_rows + slot) * block
    block_col = tl.load(block_cols + slot)
    down, right, phase_y, phase_x = tap_shift(block_col // channel_blocks, geometry)
    channel = (block_col % channel_blocks) * block + phase_x * channel_blocks * block
    strided: tl.constexpr = geometry[STRIDE_Y] * geometry[STRIDE_X] > 1
    pixels: tl.constexpr = images * height * width
    accumulator = tl.zeros((block, block), dtype=tl.float32)
    for box in range(split * boxes_per_split, tl.minimum((split + 1) * boxes_per_split, boxes)):
        left = (box % boxes_x) * width
        top = ((box // boxes_x) % boxes_y) * height
        image = (box // (boxes_x * boxes_y)) * images
        gradient_tile = tl.reshape(output_grad.load([image, top, left, row]), (pixels, block))
        if strided:
            x_tile = tl.reshape(x.load([image, top + down, phase_y, left + right, channel]), (pixels, block))
        else:
            x_tile = tl.reshape(x.load([image, top + down, left + right, channel]), (pixels, block))
        accumulator = tl.dot(gradient_tile.T, x_tile, accumulator, input_precision=precision)
    lanes = tl.arange(0, block)
    target = out + (split.to(tl.int64) * blocks + slot) * (block * block)
    tl.store(target + lanes[:, None] * block + lanes[None, :], accumulator.to(out.dtype.element_ty))
