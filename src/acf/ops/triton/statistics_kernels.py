"""Mean and variance of every channel of a convolution's output, from tiles of pixels.

A tile's mean and sum of squared deviations from it are combined over all tiles (Chan et al., 1983): deviations from a
mean, unlike a sum of squares, lose no digits where the mean is large. Every sum has a fixed order, so results repeat.
"""

import triton.language as tl

from acf.ops.triton.conv_kernels import sum_taps
from acf.ops.triton.jit import jit
from acf.ops.triton.product_kernels import add_bias


@jit
def store_tile_statistics(
    values: tl.tensor,
    inside: tl.tensor,
    target: tl.tensor,
    channels: tl.tensor,
    axis: tl.constexpr,
    whole: tl.constexpr,
    pixels: tl.constexpr,
) -> None:
    """Store means at ``target`` and sums of squared deviations ``channels`` elements behind them.

    ``values`` is float32 with ``pixels`` along ``axis``, of which those ``inside`` count, or all with ``whole``.
    """
    if whole:
        mean = tl.sum(values, axis) * (1.0 / pixels)
        deviations = values - tl.expand_dims(mean, axis)
    else:
        count = tl.sum(inside.to(tl.float32), 0)
        counted = tl.expand_dims(inside, 1 - axis)
        mean = tl.sum(tl.where(counted, values, 0.0), axis) / count
        deviations = tl.where(counted, values - tl.expand_dims(mean, axis), 0.0)
    tl.store(target, mean)
    tl.store(target + channels, tl.sum(deviations * deviations, axis))


@jit
def conv_statistics_kernel(
    source: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    bias: tl.tensor,
    partials: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    block_rows: tl.tensor,
    block_cols: tl.tensor,
    groups: tl.tensor,
    channel_blocks: tl.tensor,
    batch: tl.tensor,
    out_height: tl.tensor,
    out_width: tl.tensor,
    boxes_y: tl.tensor,
    boxes_x: tl.tensor,
    geometry: tl.constexpr,
    block: tl.constexpr,
    images: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    depth: tl.constexpr,
    swap: tl.constexpr,
    has_bias: tl.constexpr,
    whole: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """The forward pass of `conv_product_descriptor_kernel`, and the statistics of each box of what it stores.

    ``partials`` is float32 ``[boxes, 2, out_channels]``; ``whole`` says that boxes cover the output without a rest.
    """
    group = tl.program_id(0) % groups
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
        geometry, block, pixels, depth, True, swap, precision,
    )  # fmt: skip
    if has_bias:
        accumulator = add_bias(accumulator, bias, group * block, block, swap)
    rounded = accumulator.to(out.dtype)
    result = rounded.T if swap else rounded
    out.store([image, top, left, group * block], tl.reshape(result, (images, height, width, block)))
    lanes = tl.arange(0, pixels)
    inside = (
        (image + lanes // (height * width) < batch)
        & (top + lanes // width % height < out_height)
        & (left + lanes % width < out_width)
    )
    channels = groups * block
    target = partials + box.to(tl.int64) * 2 * channels + group * block + tl.arange(0, block)
    store_tile_statistics(rounded.to(tl.float32), inside, target, channels, 1 if swap else 0, whole, pixels)


@jit
def tile_statistics_kernel(
    source: tl.tensor,
    partials: tl.tensor,
    pixels: tl.tensor,
    channels: tl.tensor,
    tile: tl.constexpr,
    channel_tile: tl.constexpr,
    whole: tl.constexpr,
) -> None:
    """Statistics of each ``tile`` pixels of ``source [pixels, channels]``: ``partials [tiles, 2, channels]``."""
    strips = channels // channel_tile
    columns = (tl.program_id(0) % strips) * channel_tile + tl.arange(0, channel_tile)
    number = tl.program_id(0) // strips
    rows = number * tile + tl.arange(0, tile)
    inside = rows < pixels
    values = tl.load(
        source + (rows.to(tl.int64) * channels)[:, None] + columns[None, :], mask=inside[:, None], other=0.0
    ).to(tl.float32)
    target = partials + number.to(tl.int64) * 2 * channels + columns
    store_tile_statistics(values, inside, target, channels, 0, whole, tile)


@jit
def combine_statistics_kernel(
    partials: tl.tensor,
    mean: tl.tensor,
    variance: tl.tensor,
    boxes: tl.tensor,
    channels: tl.tensor,
    batch: tl.tensor,
    out_height: tl.tensor,
    out_width: tl.tensor,
    boxes_y: tl.tensor,
    boxes_x: tl.tensor,
    images: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    rows: tl.constexpr,
    channel_tile: tl.constexpr,
) -> None:
    """``mean`` and biased ``variance``, float32 ``[channels]``, of pixels whose boxes have ``partials``.

    One pass, about the first box's mean: it lies so near to the mean that the difference of squares loses few digits.
    """
    columns = tl.program_id(0) * channel_tile + tl.arange(0, channel_tile)
    count = batch * out_height * out_width
    center = tl.load(partials + columns)
    shifts = tl.zeros((rows, channel_tile), dtype=tl.float32)
    squares = tl.zeros((rows, channel_tile), dtype=tl.float32)
    for start in range(0, boxes, rows):
        box = start + tl.arange(0, rows)
        exists = (box < boxes)[:, None]
        place = partials + (box.to(tl.int64) * 2 * channels)[:, None] + columns[None, :]
        pixels = box_pixels(box, batch, out_height, out_width, boxes_y, boxes_x, images, height, width)[:, None]
        shift = tl.where(exists, tl.load(place, mask=exists, other=0.0) - center[None, :], 0.0)
        shifts += shift * pixels
        squares += tl.load(place + channels, mask=exists, other=0.0) + shift * shift * pixels
    shift_mean = tl.sum(shifts, 0) / count
    tl.store(mean + columns, center + shift_mean)
    spread = tl.sum(squares, 0) / count - shift_mean * shift_mean
    tl.store(variance + columns, tl.where(spread < 0.0, 0.0, spread))  # rounding may leave less than 0; NaN stays NaN


@jit
def box_pixels(
    box: tl.tensor,
    batch: tl.tensor,
    out_height: tl.tensor,
    out_width: tl.tensor,
    boxes_y: tl.tensor,
    boxes_x: tl.tensor,
    images: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
) -> tl.tensor:
    """How many pixels of a box exist, float32."""
    left = (box % boxes_x) * width
    top = ((box // boxes_x) % boxes_y) * height
    image = (box // (boxes_x * boxes_y)) * images
    extent = tl.minimum(batch - image, images) * tl.minimum(out_height - top, height)
    return (extent * tl.minimum(out_width - left, width)).to(tl.float32)
