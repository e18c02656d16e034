"""A product that finds the zero tiles of a dense operand at run time and skips them, as TensorDash does by element.

A tensor core multiplies tiles, so a GPU can leave out only tiles whose elements are all zero. Three launches: mark the
tiles that hold a non-zero, list them for each row of tiles, multiply what is listed.
"""

from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from acf.errors import SparsityError
from acf.ops.triton.jit import jit
from acf.ops.triton.launch import launch
from acf.ops.triton.support import DTYPES, ceil_div, readable

ROW_TILE, COLUMN_TILE, DEPTH_TILE = 64, 128, 32


class Listed(NamedTuple):
    """For every row of tiles, int32: ``columns [row tiles, depth tiles]`` of tiles to multiply, ``counts`` of them."""

    columns: Tensor
    counts: Tensor


@jit
def mark_tiles_kernel(
    source: tl.tensor,
    marks: tl.tensor,
    rows: tl.tensor,
    depth: tl.tensor,
    row_tile: tl.constexpr,
    depth_tile: tl.constexpr,
) -> None:
    """``marks``: 1 where a tile of ``source [rows, depth]`` holds a non-zero."""
    tiles = tl.cdiv(depth, depth_tile)
    row = (tl.program_id(0) // tiles) * row_tile + tl.arange(0, row_tile)
    column = (tl.program_id(0) % tiles) * depth_tile + tl.arange(0, depth_tile)
    inside = (row < rows)[:, None] & (column < depth)[None, :]
    values = tl.load(source + (row.to(tl.int64) * depth)[:, None] + column[None, :], mask=inside, other=0.0)
    nonzero = (values.to(tl.float32) != 0.0).to(tl.int32)
    tl.store(marks + tl.program_id(0), tl.max(tl.max(nonzero, 1), 0))


@jit
def list_tiles_kernel(
    marks: tl.tensor, columns: tl.tensor, counts: tl.tensor, tiles: tl.tensor, padded_tiles: tl.constexpr
) -> None:
    """The marked tiles of one row of tiles, in order, and how many they are."""
    first = tl.program_id(0) * tiles
    tile = tl.arange(0, padded_tiles)
    mark = tl.load(marks + first + tile, mask=tile < tiles, other=0)
    place = tl.cumsum(mark, 0) - 1
    tl.store(columns + first + place, tile, mask=mark > 0)
    tl.store(counts + tl.program_id(0), tl.sum(mark, 0))


@jit
def listed_product_kernel(
    left: tl.tensor,
    right: tl.tensor,
    out: tl.tensor,
    columns: tl.tensor,
    counts: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
    depth: tl.tensor,
    row_tile: tl.constexpr,
    column_tile: tl.constexpr,
    depth_tile: tl.constexpr,
) -> None:
    """One tile of ``out [rows, width] = left [rows, depth] @ right [width, depth].T`` from the listed tiles of left."""
    across = tl.cdiv(width, column_tile)
    row_at = tl.program_id(0) // across
    row = row_at * row_tile + tl.arange(0, row_tile)
    column = (tl.program_id(0) % across) * column_tile + tl.arange(0, column_tile)
    first = row_at * tl.cdiv(depth, depth_tile)
    total = tl.zeros((row_tile, column_tile), dtype=tl.float32)
    for index in range(tl.load(counts + row_at)):
        k = tl.load(columns + first + index) * depth_tile + tl.arange(0, depth_tile)
        inside = k < depth
        lefts = tl.load(
            left + (row.to(tl.int64) * depth)[:, None] + k[None, :],
            mask=(row < rows)[:, None] & inside[None, :],
            other=0.0,
        )
        rights = tl.load(
            right + (column.to(tl.int64) * depth)[None, :] + k[:, None],
            mask=(column < width)[None, :] & inside[:, None],
            other=0.0,
        )
        total = tl.dot(lefts, rights, total, input_precision="ieee")
    target = out + (row.to(tl.int64) * width)[:, None] + column[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (column < width)[None, :])


def skip_zeros_product(left: Tensor, right: Tensor) -> Tensor:
    """``left [rows, depth] @ right [width, depth].T``, without the tiles of ``left`` that are all zero.

    Where ``right`` holds Inf or NaN, a skipped tile leaves out the NaN that a dense product would give.
    """
    rows, depth = left.shape
    width = right.shape[0]
    if right.shape != (width, depth) or left.dtype != right.dtype or left.dtype not in DTYPES:
        raise SparsityError(
            f"left {tuple(left.shape)} {left.dtype} and right {tuple(right.shape)} {right.dtype} do not fit; pass "
            "[rows, depth] and [width, depth] of one float type"
        )
    left, right = readable(left), readable(right)
    listed = list_nonzero_tiles(left)
    out = left.new_empty((rows, width))
    programs = ceil_div(rows, ROW_TILE) * ceil_div(width, COLUMN_TILE)
    launch(
        listed_product_kernel, programs, (left, right, out, *listed), (rows, width, depth),
        row_tile=ROW_TILE, column_tile=COLUMN_TILE, depth_tile=DEPTH_TILE, num_warps=4, num_stages=4,
    )  # fmt: skip
    return out


def list_nonzero_tiles(source: Tensor) -> Listed:
    """The tiles of contiguous ``source [rows, depth]`` that hold a non-zero."""
    rows, depth = source.shape
    row_tiles, tiles = ceil_div(rows, ROW_TILE), ceil_div(depth, DEPTH_TILE)
    marks = torch.empty(row_tiles * tiles, dtype=torch.int32, device=source.device)
    listed = Listed(marks.new_empty((row_tiles, tiles)), marks.new_empty(row_tiles))
    launch(
        mark_tiles_kernel, row_tiles * tiles, (source, marks), (rows, depth),
        row_tile=ROW_TILE, depth_tile=DEPTH_TILE, num_warps=4,
    )  # fmt: skip
    padded = 1 << max(0, tiles - 1).bit_length()
    launch(list_tiles_kernel, row_tiles, (marks, *listed), (tiles,), padded_tiles=padded, num_warps=4)
    return listed
