"""Kernels of the gradient norms: blocks of ``output_grad.T @ x`` reduced to their norms as they are formed."""

import triton.language as tl

from acf.ops.triton.geometry_kernels import input_pixel, split_pixel
from acf.ops.triton.jit import jit


@jit
def swizzle(work: tl.tensor, tile_rows: tl.tensor, tile_cols: tl.tensor, band: tl.constexpr) -> tl.tensor:
    """Tile row and column of the ``work``-th tile, walking bands of ``band`` rows so that L2 keeps both operands."""
    per_band = band * tile_cols
    first_row = (work // per_band) * band
    height = tl.minimum(tile_rows - first_row, band)
    within = work % per_band
    return first_row + within % height, within // height


@jit
def store_block_squares(
    accumulator: tl.tensor,
    squares: tl.tensor,
    first_row: tl.tensor,
    first_col: tl.tensor,
    grid_rows: tl.tensor,
    grid_cols: tl.tensor,
    col_end: tl.tensor,
    block: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
) -> None:
    """Sums of squares of the blocks of a gradient tile ``[height, width]`` into ``squares [grid_rows, grid_cols]``."""
    by_column = tl.sum(tl.reshape(accumulator * accumulator, (height, width // block, block)), 2)
    sums = tl.sum(tl.reshape(by_column, (height // block, block, width // block)), 1)
    rows = first_row + tl.arange(0, height // block)
    cols = first_col + tl.arange(0, width // block)
    inside = (rows < grid_rows)[:, None] & (cols < col_end)[None, :]
    tl.store(squares + rows[:, None] * grid_cols + cols[None, :], sums, mask=inside)


@jit
def norm_tiles_descriptor_kernel(
    output_grad: tl.tensor,
    x: tl.tensor,
    needed: tl.tensor,
    squares: tl.tensor,
    tile_rows: tl.tensor,
    tile_cols: tl.tensor,
    grid_rows: tl.tensor,
    grid_cols: tl.tensor,
    tokens: tl.tensor,
    block: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    depth: tl.constexpr,
    band: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """Block square sums of every needed ``height`` x ``width`` tile of a linear layer's gradient."""
    tile_row, tile_col = swizzle(tl.program_id(0), tile_rows, tile_cols, band)
    if tl.load(needed + tile_row * tile_cols + tile_col) == 0:
        return
    accumulator = tl.zeros((height, width), dtype=tl.float32)
    for start in range(0, tokens, depth):
        gradient_tile = output_grad.load([start, tile_row * height])
        x_tile = x.load([start, tile_col * width])
        accumulator = tl.dot(gradient_tile.T, x_tile, accumulator, input_precision=precision)
    store_block_squares(
        accumulator, squares, tile_row * (height // block), tile_col * (width // block),
        grid_rows, grid_cols, grid_cols, block, height, width,
    )  # fmt: skip


@jit
def norm_tiles_conv_kernel(
    output_grad: tl.tensor,
    x: tl.tensor,
    needed: tl.tensor,
    squares: tl.tensor,
    tile_rows: tl.tensor,
    tile_cols: tl.tensor,
    grid_rows: tl.tensor,
    grid_cols: tl.tensor,
    pixels: tl.tensor,
    out_channels: tl.tensor,
    in_channels: tl.tensor,
    tiles_per_tap: tl.tensor,
    in_height: tl.tensor,
    in_width: tl.tensor,
    out_height: tl.tensor,
    out_width: tl.tensor,
    geometry: tl.constexpr,
    block: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    depth: tl.constexpr,
    band: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """As the linear one; a tile holds channels of one tap, and the tap shifts the pixels read."""
    tile_row, tile_col = swizzle(tl.program_id(0), tile_rows, tile_cols, band)
    if tl.load(needed + tile_row * tile_cols + tile_col) == 0:
        return
    tap = tile_col // tiles_per_tap
    channels = (tile_col % tiles_per_tap) * width + tl.arange(0, width)
    outputs = tile_row * height + tl.arange(0, height)
    accumulator = tl.zeros((height, width), dtype=tl.float32)
    for start in range(0, pixels, depth):
        positions = start + tl.arange(0, depth)
        present = positions < pixels
        gradient_tile = tl.load(
            output_grad + (positions.to(tl.int64) * out_channels)[:, None] + outputs[None, :],
            mask=present[:, None] & (outputs < out_channels)[None, :],
            other=0.0,
        )
        image, row, col = split_pixel(positions, out_height, out_width)
        pixel, exists = input_pixel(image, row, col, tap, in_height, in_width, geometry)
        x_tile = tl.load(
            x + (pixel.to(tl.int64) * in_channels)[:, None] + channels[None, :],
            mask=(present & exists)[:, None] & (channels < in_channels)[None, :],
            other=0.0,
        )
        accumulator = tl.dot(gradient_tile.T, x_tile, accumulator, input_precision=precision)
    blocks_per_tap = in_channels // block
    store_block_squares(
        accumulator, squares, tile_row * (height // block),
        tap * blocks_per_tap + (tile_col % tiles_per_tap) * (width // block),
        grid_rows, grid_cols, (tap + 1) * blocks_per_tap, block, height, width,
    )  # fmt: skip


@jit
def norm_list_kernel(
    output_grad: tl.tensor,
    x: tl.tensor,
    candidate_rows: tl.tensor,
    candidate_cols: tl.tensor,
    norms: tl.tensor,
    positions_end: tl.tensor,
    out_channels: tl.tensor,
    in_channels: tl.tensor,
    channel_blocks: tl.tensor,
    in_height: tl.tensor,
    in_width: tl.tensor,
    out_height: tl.tensor,
    out_width: tl.tensor,
    geometry: tl.constexpr,
    block: tl.constexpr,
    depth: tl.constexpr,
    convolution: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """The norm of one candidate block per program: the cheaper way where candidates are few."""
    candidate = tl.program_id(0)
    lanes = tl.arange(0, block)
    block_col = tl.load(candidate_cols + candidate)
    outputs = tl.load(candidate_rows + candidate) * block + lanes
    tap = block_col // channel_blocks
    channels = (block_col % channel_blocks) * block + lanes
    accumulator = tl.zeros((block, block), dtype=tl.float32)
    for start in range(0, positions_end, depth):
        positions = start + tl.arange(0, depth)
        inside = positions < positions_end
        gradient_tile = tl.load(
            output_grad + (positions.to(tl.int64) * out_channels)[:, None] + outputs[None, :],
            mask=inside[:, None],
            other=0.0,
        )
        rows = positions
        if convolution:
            image, row, col = split_pixel(positions, out_height, out_width)
            rows, exists = input_pixel(image, row, col, tap, in_height, in_width, geometry)
            inside = inside & exists
        x_tile = tl.load(
            x + (rows.to(tl.int64) * in_channels)[:, None] + channels[None, :], mask=inside[:, None], other=0.0
        )
        accumulator = tl.dot(gradient_tile.T, x_tile, accumulator, input_precision=precision)
    tl.store(norms + candidate, tl.sqrt(tl.sum(tl.sum(accumulator * accumulator, 1), 0)))
