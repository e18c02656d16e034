"""Kernels of the products of a mixture of experts: as those of linear layers, for all experts in one launch.

Tokens are sorted by expert. A tile of tokens belongs to one expert: the last of an expert may be partly filled. Every
program finds its tile in the token offsets itself, so no list of tiles has to be built or brought to the host.
"""

import triton.language as tl

from acf.ops.triton.jit import jit
from acf.ops.triton.product_kernels import sum_blocks
from acf.ops.triton.weight_grad_kernels import find_work, gathered_columns, store_blocks, store_norms, sum_tokens


@jit
def find_tile(
    token_offsets: tl.tensor,
    experts: tl.tensor,
    tokens: tl.tensor,
    tile: tl.tensor,
    token_tile: tl.constexpr,
    expert_span: tl.constexpr,
) -> tl.tensor:
    """Expert, first row and end of rows of the ``tile``-th tile.

    The expert is ``experts`` for rows past the last offset, which belong to none, and more where there are fewer tiles.
    """
    ids = tl.arange(0, expert_span)
    starts = tl.load(token_offsets + ids, mask=(ids > 0) & (ids <= experts), other=0).to(tl.int32)
    ends = tl.load(token_offsets + ids + 1, mask=ids < experts, other=0).to(tl.int32)
    ends = tl.where(ids < experts, ends, tokens)
    tiles = tl.where(ids <= experts, (ends - starts + token_tile - 1) // token_tile, 0)
    before = (ids <= experts) & (tl.cumsum(tiles, 0) <= tile)
    expert = tl.sum(before.to(tl.int32), 0)
    passed = tl.sum(tl.where(before, tiles, 0), 0)
    first = tl.sum(tl.where(ids == expert, starts, 0), 0) + (tile - passed) * token_tile
    end = tl.sum(tl.where(ids == expert, ends, 0), 0)
    return expert, first, end


@jit
def experts_product_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    out_tiles: tl.tensor,
    out: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    indices: tl.tensor,
    token_offsets: tl.tensor,
    groups: tl.tensor,
    x_blocks: tl.tensor,
    experts: tl.tensor,
    tokens: tl.tensor,
    block: tl.constexpr,
    token_tile: tl.constexpr,
    depth: tl.constexpr,
    expert_span: tl.constexpr,
    forward: tl.constexpr,
    swap: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """``x [tokens, x_blocks * block]`` times the weight of each tile's expert, into ``out [tokens, groups * block]``.

    ``x``, ``weight [nnz * block, block]`` and ``out_tiles`` are tensor descriptors, ``out`` is the pointer of the same
    output: a tile that ends with its expert must not write the rows of the next. ``groups`` are the block rows
    (``forward``) or block columns of one expert; ``indices`` of rows count over all experts.
    """
    group = tl.program_id(0) % groups  # groups vary fastest: programs in flight share rows of x in L2
    expert, token, token_end = find_tile(
        token_offsets, experts, tokens, tl.program_id(0) // groups, token_tile, expert_span
    )
    if expert > experts:
        return
    chunks: tl.constexpr = block // depth
    owner = tl.minimum(expert, experts - 1) * groups + group
    begin = tl.load(offsets + owner) * chunks
    end = tl.where(expert < experts, tl.load(offsets + owner + 1) * chunks, begin)
    first_index = 0 if forward else expert * x_blocks
    if swap:
        accumulator = tl.zeros((block, token_tile), dtype=tl.float32)
    else:
        accumulator = tl.zeros((token_tile, block), dtype=tl.float32)
    accumulator = sum_blocks(
        x, weight, slots, indices, begin, end, token, accumulator, block, depth, forward, swap, precision, first_index
    )
    result = accumulator.to(out_tiles.dtype)
    if swap:
        result = result.T
    if token + token_tile <= token_end:
        out_tiles.store([token, group * block], result)
    else:
        rows = token + tl.arange(0, token_tile)
        columns = group * block + tl.arange(0, block)
        target = out + rows.to(tl.int64)[:, None] * (groups * block) + columns[None, :]
        tl.store(target, result, mask=(rows < token_end)[:, None])


@jit
def experts_weight_grad_kernel(
    shared: tl.tensor,
    gathered: tl.tensor,
    out: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    gathered_index: tl.tensor,
    token_offsets: tl.tensor,
    owners: tl.tensor,
    owners_per_expert: tl.tensor,
    rows_per_expert: tl.tensor,
    shared_width: tl.tensor,
    gathered_width: tl.tensor,
    block: tl.constexpr,
    depth: tl.constexpr,
    pack: tl.constexpr,
    owner_span: tl.constexpr,
    shared_is_input: tl.constexpr,
    wide: tl.constexpr,
    norms: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """As `weight_grad_gather_kernel` without splits: ``pack`` blocks of one owner, over the tokens of its expert.

    Owners are the block columns (``shared_is_input``) or block rows of all experts, ``owners_per_expert`` of each.
    ``gathered_index`` of rows counts over all experts, ``rows_per_expert`` of each. ``out [blocks, block, block]``
    takes the gradient; with ``norms``, ``out [blocks]`` the norms.
    """
    owner, first = find_work(offsets, owners, tl.program_id(0), pack, owner_span)
    if owner >= owners:
        return
    expert = owner // owners_per_expert
    end = tl.load(offsets + owner + 1)
    present = first + tl.arange(0, pack * block) // block < end
    slot = tl.load(slots + first + tl.arange(0, pack * block) // block, mask=present, other=0)
    columns = gathered_columns(gathered_index, slot, present, block, pack)
    if shared_is_input:
        gathered -= expert * (rows_per_expert * block)
    begin_token = tl.where(expert > 0, tl.load(token_offsets + expert).to(tl.int32), 0)
    end_token = tl.load(token_offsets + expert + 1).to(tl.int32)
    first_rows = begin_token + tl.arange(0, depth).to(tl.int64)
    shared_columns = (owner % owners_per_expert) * block + tl.arange(0, block)
    gathered_pointers = gathered + (first_rows * gathered_width)[:, None] + columns[None, :]
    shared_pointers = shared + (first_rows * shared_width)[:, None] + shared_columns[None, :]
    accumulator, _ = sum_tokens(
        shared_pointers, gathered_pointers, present, begin_token, end_token, depth * shared_width,
        depth * gathered_width, block, depth, pack, wide, False, precision,
    )  # fmt: skip
    if norms:
        store_norms(accumulator, out, slots, first, end, block, pack, wide)
    else:
        store_blocks(accumulator, out, slot, present, tl.zeros((), tl.int64), block, pack, shared_is_input, wide)
