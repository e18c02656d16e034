"""The gradient of a bias: column sums of the output gradient, in float32 and always in the same order."""

import torch
import triton.language as tl
from torch import Tensor

from acf.ops import reference
from acf.ops.dense import dense_chosen
from acf.ops.triton.jit import jit
from acf.ops.triton.launch import launch
from acf.ops.triton.support import DTYPES, ceil_div, readable

ROW_TILE, COLUMN_TILE = 64, 128
PROGRAMS = 528
"""Four programs on each of the 132 multiprocessors of a Hopper chip: enough loads in flight to saturate its memory."""


@jit
def sum_rows_kernel(
    source: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
    rows_per_split: tl.tensor,
    row_tile: tl.constexpr,
    column_tile: tl.constexpr,
) -> None:
    """``out [splits, width]``: for every split of the rows of ``source [rows, width]`` their sum."""
    tiles = tl.cdiv(width, column_tile)
    columns = (tl.program_id(0) % tiles) * column_tile + tl.arange(0, column_tile)
    split = tl.program_id(0) // tiles
    begin = split * rows_per_split
    end = tl.minimum(begin + rows_per_split, rows)
    total = tl.zeros((row_tile, column_tile), dtype=tl.float32)
    for start in range(begin, end, row_tile):
        row = start + tl.arange(0, row_tile)
        inside = (row < end)[:, None] & (columns < width)[None, :]
        addends = tl.load(source + (row.to(tl.int64) * width)[:, None] + columns[None, :], mask=inside, other=0.0)
        total += addends.to(tl.float32)
    target = out + split.to(tl.int64) * width + columns
    tl.store(target, tl.sum(total, 0).to(out.dtype.element_ty), mask=columns < width)


def bias_grad(output_grad: Tensor, dtype: torch.dtype) -> Tensor:
    """`reference.bias_grad` on the GPU."""
    if output_grad.dim() == 4:
        pixels = output_grad.permute(0, 2, 3, 1)
        if not pixels.is_contiguous():  # channels first: torch reduces along contiguous pixels
            return reference.bias_grad(output_grad, dtype)
        output_grad = pixels.reshape(-1, pixels.shape[3])
    if dense_chosen() or output_grad.dtype not in DTYPES or dtype not in DTYPES or output_grad.numel() == 0:
        return reference.bias_grad(output_grad, dtype)
    out = output_grad.new_empty(output_grad.shape[1], dtype=dtype)
    launch_bias_grad(readable(output_grad), out)
    return out


def launch_bias_grad(output_grad: Tensor, out: Tensor) -> None:
    """Fill ``out [width]`` with the column sums of contiguous ``output_grad [rows, width]``, in two stages."""
    rows, width = output_grad.shape
    splits = min(ceil_div(PROGRAMS, ceil_div(width, COLUMN_TILE)), ceil_div(rows, ROW_TILE))
    rows_per_split = ceil_div(ceil_div(rows, splits), ROW_TILE) * ROW_TILE
    splits = ceil_div(rows, rows_per_split)
    if splits == 1:
        _sum_rows(output_grad, out, rows)
        return
    parts = out.new_empty((splits, width), dtype=torch.float32)
    _sum_rows(output_grad, parts, rows_per_split)
    _sum_rows(parts, out, splits)


def _sum_rows(source: Tensor, out: Tensor, rows_per_split: int) -> None:
    rows, width = source.shape
    launch(
        sum_rows_kernel, ceil_div(width, COLUMN_TILE) * ceil_div(rows, rows_per_split), (source, out),
        (rows, width, rows_per_split), row_tile=ROW_TILE, column_tile=COLUMN_TILE, num_warps=4,
    )  # fmt: skip
