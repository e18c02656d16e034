"""Pruning a weight to 2:4 in one pass over it: mask, cast, and transposition for the input gradient's operand."""

import torch
import triton.language as tl
from torch import Tensor

from acf.ops.semi_structured import product
from acf.ops.triton.jit import jit
from acf.ops.triton.launch import launch
from acf.ops.triton.support import DTYPES, ceil_div
from acf.sparse.transposable import row_choices, transposable_patterns

TILE_ROWS, TILE_COLS = 32, 64
PATTERNS = tl.constexpr(transposable_patterns(2, 4))
BITS = tl.constexpr(
    tuple(
        sum(1 << (4 * row + col) for row, choice in enumerate(pattern) for col in row_choices(2, 4)[choice])
        for pattern in transposable_patterns(2, 4)
    )
)
"""Each pattern of a 4 x 4 tile as a number: bit 4 * row + column is set where a weight is kept."""
COUNT = tl.constexpr(len(transposable_patterns(2, 4)))


@jit
def four(values: tl.tensor, tiles: tl.constexpr, width: tl.constexpr) -> tl.tensor:
    """The four members of the last dimension of ``[tiles, width, 4]``."""
    even, odd = tl.split(tl.reshape(values, (tiles, width, 2, 2)))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@jit
def kept_of_groups(magnitudes: tl.tensor, rows: tl.constexpr, cols: tl.constexpr) -> tl.tensor:
    """The two greatest of every four along the columns of ``[rows, cols]``; ties fall to the lower index."""
    a, b, c, d = four(tl.reshape(magnitudes, (rows, cols // 4, 4)), rows, cols // 4)
    # One comparison of every pair, as `acf.sparse.nm_mask` makes it: 1 where the later member wins.
    ab, ac, ad = (b > a).to(tl.int32), (c > a).to(tl.int32), (d > a).to(tl.int32)
    bc, bd, cd = (c > b).to(tl.int32), (d > b).to(tl.int32), (d > c).to(tl.int32)
    even = tl.join(ab + ac + ad, 2 - ac - bc + cd)
    odd = tl.join(1 - ab + bc + bd, 3 - ad - bd - cd)
    return tl.reshape(tl.join(even, odd), (rows, cols)) < 2


@jit
def rows_of(sums: tl.tensor, tiles: tl.constexpr) -> tl.tensor:
    """The four rows of ``sums [tiles, 4]``."""
    even, odd = tl.split(tl.reshape(sums, (tiles, 2, 2)))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@jit
def kept_of_tiles(magnitudes: tl.tensor, rows: tl.constexpr, cols: tl.constexpr) -> tl.tensor:
    """The pattern of the greatest sum in every 4 x 4 tile of ``[rows, cols]``; of equal sums the first."""
    count: tl.constexpr = rows * cols // 16
    tiles = tl.permute(tl.reshape(magnitudes, (rows // 4, 4, cols // 4, 4)), (0, 2, 1, 3))
    a, b, c, d = four(tl.reshape(tiles, (count, 4, 4)), count, 4)
    ab0, ab1, ab2, ab3 = rows_of(a + b, count)
    ac0, ac1, ac2, ac3 = rows_of(a + c, count)
    ad0, ad1, ad2, ad3 = rows_of(a + d, count)
    bc0, bc1, bc2, bc3 = rows_of(b + c, count)
    bd0, bd1, bd2, bd3 = rows_of(b + d, count)
    cd0, cd1, cd2, cd3 = rows_of(c + d, count)
    row0 = (ab0, ac0, ad0, bc0, bd0, cd0)
    row1 = (ab1, ac1, ad1, bc1, bd1, cd1)
    row2 = (ab2, ac2, ad2, bc2, bd2, cd2)
    row3 = (ab3, ac3, ad3, bc3, bd3, cd3)
    best = tl.full((count,), -1.0, tl.float32)
    code = tl.full((count,), BITS[0], tl.int32)
    for i in tl.static_range(COUNT):
        score = (row0[PATTERNS[i][0]] + row1[PATTERNS[i][1]]) + (row2[PATTERNS[i][2]] + row3[PATTERNS[i][3]])
        code = tl.where(score > best, BITS[i], code)
        best = tl.where(score > best, score, best)
    place = tl.arange(0, 4)
    kept = (code[:, None, None] >> (4 * place[None, :, None] + place[None, None, :])) & 1
    kept = tl.permute(tl.reshape(kept, (rows // 4, cols // 4, 4, 4)), (0, 2, 1, 3))
    return tl.reshape(kept, (rows, cols)) != 0


@jit
def prune_kernel(
    weight: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    cols: tl.tensor,
    groups: tl.constexpr,
    left_out: tl.constexpr,
    transposed: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_cols: tl.constexpr,
) -> None:
    """One tile of ``weight [rows, cols]``, pruned, into ``out [rows, cols]`` or transposed ``[cols, rows]``."""
    across = tl.cdiv(cols, tile_cols)
    row = (tl.program_id(0) // across) * tile_rows + tl.arange(0, tile_rows)
    col = (tl.program_id(0) % across) * tile_cols + tl.arange(0, tile_cols)
    inside = (row < rows)[:, None] & (col < cols)[None, :]
    values = tl.load(weight + row.to(tl.int64)[:, None] * cols + col[None, :], mask=inside, other=0.0)
    magnitudes = tl.abs(values.to(tl.float32))
    if groups == "inputs":
        kept = kept_of_groups(magnitudes, tile_rows, tile_cols)
    elif groups == "outputs":
        kept = tl.trans(kept_of_groups(tl.trans(magnitudes), tile_cols, tile_rows))
    else:
        kept = kept_of_tiles(magnitudes, tile_rows, tile_cols)
    if left_out:
        kept = kept == 0
    pruned = tl.where(kept, values, 0.0).to(out.dtype.element_ty)
    if transposed:
        place = out + col.to(tl.int64)[:, None] * rows + row[None, :]
        tl.store(place, tl.trans(pruned), mask=tl.trans(inside))
    else:
        tl.store(out + row.to(tl.int64)[:, None] * cols + col[None, :], pruned, mask=inside)


def prune(weight: Tensor, groups: str, left_out: bool, transposed: bool, dtype: torch.dtype) -> Tensor:
    """CUDA kernel of ``acf::semi_structured_prune``."""
    rows, cols = weight.shape
    if weight.dtype not in DTYPES or dtype not in DTYPES or rows % 4 or cols % 4 or weight.numel() == 0:
        return product.reference_prune(weight, groups, left_out, transposed, dtype)
    out = weight.new_empty((cols, rows) if transposed else (rows, cols), dtype=dtype)
    launch(
        prune_kernel,
        ceil_div(rows, TILE_ROWS) * ceil_div(cols, TILE_COLS),
        (weight.contiguous(), out),
        (rows, cols),
        groups=groups, left_out=left_out, transposed=transposed,
        tile_rows=TILE_ROWS, tile_cols=TILE_COLS, num_warps=4, num_stages=1,
    )  # fmt: skip
    return out
