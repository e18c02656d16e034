"""Kernels of a linear layer's weight gradient: the present blocks of ``output_grad.T @ x``.

Blocks of one block row share the tiles of ``output_grad`` they need, blocks of one block column those of ``x``.
A program takes ``pack`` blocks of one owner (a row or a column), loads the shared tile once and gathers the other
operand's. With few blocks the tokens are split among programs (split-K), and the parts are added in a fixed order.
"""

import triton.language as tl

from acf.ops.triton.jit import jit


@jit
def find_work(
    offsets: tl.tensor,
    owners: tl.tensor,
    work: tl.tensor,
    pack: tl.constexpr,
    owner_span: tl.constexpr,
    keep_empty: tl.constexpr = False,
) -> tl.tensor:
    """Owner and first entry of the ``work``-th pack of blocks; ``owners`` where there are fewer packs.

    Every program scans the offsets itself, so no list has to be built, kept, or brought to the host. With
    ``keep_empty`` an owner without blocks has one pack, an empty one.
    """
    ids = tl.arange(0, owner_span)
    inside = ids < owners
    starts = tl.load(offsets + ids, mask=inside, other=0)
    ends = tl.load(offsets + ids + 1, mask=inside, other=0)
    packs = (ends - starts + pack - 1) // pack
    if keep_empty:
        packs = tl.where(inside, tl.maximum(packs, 1), 0)
    through = tl.cumsum(packs, 0)
    before = inside & (through <= work)
    owner = tl.sum(before.to(tl.int32), 0)
    passed = tl.sum(tl.where(before, packs, 0), 0)
    first = tl.sum(tl.where(ids == owner, starts, 0), 0) + (work - passed) * pack
    return owner, first


@jit
def store_norms(
    accumulator: tl.tensor,
    norms: tl.tensor,
    slots: tl.tensor,
    first: tl.tensor,
    end: tl.tensor,
    block: tl.constexpr,
    pack: tl.constexpr,
    wide: tl.constexpr,
) -> None:
    """The norm of each of the ``pack`` blocks beside each other in ``accumulator``, to the place of its slot."""
    by_lane = tl.sum(accumulator * accumulator, 0 if wide else 1)
    squares = tl.sum(tl.reshape(by_lane, (pack, block)), 1)
    entries = first + tl.arange(0, pack)
    slot = tl.load(slots + entries, mask=entries < end, other=0)
    tl.store(norms + slot, tl.sqrt(squares), mask=entries < end)


@jit
def take_blocks(
    offsets: tl.tensor,
    slots: tl.tensor,
    shared_index: tl.tensor,
    owners: tl.tensor,
    work: tl.tensor,
    block: tl.constexpr,
    pack: tl.constexpr,
    owner_span: tl.constexpr,
    keep_empty: tl.constexpr = False,
) -> tl.tensor:
    """The ``work``-th pack: its owner, its entries ``first`` to ``end``, and per lane its slot and whether it has one.

    There are ``pack * block`` lanes, ``block`` for each entry. The owner is ``owners`` where there are fewer packs.
    """
    lane_block = tl.arange(0, pack * block) // block
    if pack == 1 and not keep_empty:
        first = work
        end = work + 1
        slot = tl.load(slots + work + lane_block)
        owner = tl.load(shared_index + tl.load(slots + work))
        present = lane_block >= 0
    else:
        owner, first = find_work(offsets, owners, work, pack, owner_span, keep_empty)
        end = tl.load(offsets + owner + 1, mask=owner < owners, other=0)
        present = first + lane_block < end
        slot = tl.load(slots + first + lane_block, mask=present, other=0)
    return owner, first, end, slot, present


@jit
def gathered_columns(
    gathered_index: tl.tensor, slot: tl.tensor, present: tl.tensor, block: tl.constexpr, pack: tl.constexpr
) -> tl.tensor:
    """The column of the gathered operand that each of ``pack * block`` lanes reads."""
    lane_inner = tl.arange(0, pack * block) % block
    columns = tl.load(gathered_index + slot, mask=present, other=0) * block + lane_inner
    # The compiler cannot see that a gathered block is contiguous; without the hint loads are 2 bytes wide.
    return tl.max_contiguous(tl.multiple_of(columns, block), block)


@jit
def store_blocks(
    accumulator: tl.tensor,
    out: tl.tensor,
    slot: tl.tensor,
    present: tl.tensor,
    first_block: tl.tensor,
    block: tl.constexpr,
    pack: tl.constexpr,
    shared_is_input: tl.constexpr,
    wide: tl.constexpr,
) -> None:
    """The ``pack`` blocks of ``accumulator`` to their slots of ``out [splits, blocks, block, block]``.

    ``first_block`` is the number of blocks of the splits before. Gathered lanes are columns of the accumulator with
    ``wide``, else rows.
    """
    lane_inner, shared_lanes = tl.arange(0, pack * block) % block, tl.arange(0, block)
    slot_start = (first_block + slot) * (block * block)
    if shared_is_input:
        gathered_part, shared_part = slot_start + lane_inner * block, shared_lanes
    else:
        gathered_part, shared_part = slot_start + lane_inner, shared_lanes * block
    result = accumulator.to(out.dtype.element_ty)
    if wide:
        tl.store(out + gathered_part[None, :] + shared_part[:, None], result, mask=present[None, :])
    else:
        tl.store(out + gathered_part[:, None] + shared_part[None, :], result, mask=present[:, None])


@jit
def sum_tokens(
    shared_pointers: tl.tensor,
    gathered_pointers: tl.tensor,
    present: tl.tensor,
    begin: tl.tensor,
    end: tl.tensor,
    shared_step: tl.tensor,
    gathered_step: tl.tensor,
    block: tl.constexpr,
    depth: tl.constexpr,
    pack: tl.constexpr,
    wide: tl.constexpr,
    with_sums: tl.constexpr,
    precision: tl.constexpr,
) -> tl.tensor:
    """The gradient of ``pack`` blocks over the tokens ``begin`` to ``end``, and the shared columns' sums if asked for.

    Pointers are those of the first ``depth`` tokens and advance by a step of elements each.
    """
    if wide:
        accumulator = tl.zeros((block, pack * block), dtype=tl.float32)
    else:
        accumulator = tl.zeros((pack * block, block), dtype=tl.float32)
    sums = tl.zeros((depth, block) if with_sums else (1, block), dtype=tl.float32)
    for start in range(begin, end, depth):
        inside = start + tl.arange(0, depth) < end
        gathered_tile = tl.load(gathered_pointers, mask=inside[:, None] & present[None, :], other=0.0)
        # Pointers move along with the loop: computing them from the token each time costs a fifth of the speed.
        gathered_pointers += gathered_step
        shared_tile = tl.load(shared_pointers, mask=inside[:, None], other=0.0)
        shared_pointers += shared_step
        if wide:
            accumulator = tl.dot(shared_tile.T, gathered_tile, accumulator, input_precision=precision)
        else:
            accumulator = tl.dot(gathered_tile.T, shared_tile, accumulator, input_precision=precision)
        if with_sums:
            sums += shared_tile.to(tl.float32)
    return accumulator, tl.sum(sums, 0)


@jit
def weight_grad_gather_kernel(
    shared: tl.tensor,
    gathered: tl.tensor,
    out: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    shared_index: tl.tensor,
    gathered_index: tl.tensor,
    bias: tl.tensor,
    owners: tl.tensor,
    works: tl.tensor,
    blocks: tl.tensor,
    tokens: tl.tensor,
    tokens_per_split: tl.tensor,
    shared_width: tl.tensor,
    gathered_width: tl.tensor,
    block: tl.constexpr,
    depth: tl.constexpr,
    pack: tl.constexpr,
    owner_span: tl.constexpr,
    shared_is_input: tl.constexpr,
    wide: tl.constexpr,
    norms: tl.constexpr,
    has_bias: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """``pack`` blocks of one owner over one split of the tokens (split-K), operands as pointers.

    ``shared [tokens, channels]`` is x where the owner is a block column (``shared_is_input``), else the output
    gradient; ``gathered`` is the other one. ``wide`` puts the gathered blocks on the matrix unit's wide dimension, else
    on its dimension of 64. ``out [splits, blocks, block, block]`` takes each split's part; with ``norms``, which allow
    one split only, ``out [blocks]`` takes the Frobenius norms. With ``has_bias``, where owners are block rows, the
    first pack of each row also sums its columns of the output gradient into ``bias [splits, shared_width]``.
    """
    work = tl.program_id(0) % works  # splits vary slowest: programs in flight read the same tokens
    split = tl.program_id(0) // works
    owner, first, end, slot, present = take_blocks(
        offsets, slots, shared_index, owners, work, block, pack, owner_span, has_bias
    )
    if pack > 1 or has_bias:  # noqa: SIM102 (a constexpr: Triton drops the branch)
        if owner >= owners:
            return
    columns = gathered_columns(gathered_index, slot, present, block, pack)
    split_begin = split * tokens_per_split
    split_end = tl.minimum(split_begin + tokens_per_split, tokens)
    first_rows = split_begin + tl.arange(0, depth).to(tl.int64)
    shared_columns = owner * block + tl.arange(0, block)
    gathered_pointers = gathered + (first_rows * gathered_width)[:, None] + columns[None, :]
    shared_pointers = shared + (first_rows * shared_width)[:, None] + shared_columns[None, :]
    shared_step, gathered_step = depth * shared_width, depth * gathered_width
    if has_bias:
        if first == tl.load(offsets + owner):
            accumulator, sums = sum_tokens(
                shared_pointers, gathered_pointers, present, split_begin, split_end, shared_step, gathered_step,
                block, depth, pack, wide, True, precision,
            )  # fmt: skip
            target = bias + split.to(tl.int64) * shared_width + shared_columns
            tl.store(target, sums.to(bias.dtype.element_ty))
        else:
            accumulator, sums = sum_tokens(
                shared_pointers, gathered_pointers, present, split_begin, split_end, shared_step, gathered_step,
                block, depth, pack, wide, False, precision,
            )  # fmt: skip
    else:
        accumulator, sums = sum_tokens(
            shared_pointers, gathered_pointers, present, split_begin, split_end, shared_step, gathered_step,
            block, depth, pack, wide, False, precision,
        )  # fmt: skip
    if norms:
        store_norms(accumulator, out, slots, first, end, block, pack, wide)
        return
    store_blocks(accumulator, out, slot, present, split.to(tl.int64) * blocks, block, pack, shared_is_input, wide)


@jit
def weight_grad_transposed_kernel(
    shared: tl.tensor,
    gathered: tl.tensor,
    out: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    gathered_index: tl.tensor,
    owners: tl.tensor,
    works: tl.tensor,
    blocks: tl.tensor,
    tokens: tl.tensor,
    tokens_per_split: tl.tensor,
    shared_width: tl.tensor,
    gathered_stride: tl.tensor,
    block: tl.constexpr,
    depth: tl.constexpr,
    pack: tl.constexpr,
    owner_span: tl.constexpr,
    shared_is_input: tl.constexpr,
    norms: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """As the gather kernel, from the transpose ``gathered [channels, gathered_stride]``, zeros past the last token.

    Its blocks are rows, read in whole cache lines; blocks of 16 columns would be read in sectors of 32 bytes.
    """
    work = tl.program_id(0) % works
    split = tl.program_id(0) // works
    lanes = tl.arange(0, pack * block)
    lane_block, lane_inner = lanes // block, lanes % block
    shared_lanes = tl.arange(0, block)
    owner, first = find_work(offsets, owners, work, pack, owner_span)
    if owner >= owners:
        return
    end = tl.load(offsets + owner + 1)
    present = first + lane_block < end
    slot = tl.load(slots + first + lane_block, mask=present, other=0)
    gathered_rows = tl.load(gathered_index + slot, mask=present, other=0) * block + lane_inner
    accumulator = tl.zeros((pack * block, block), dtype=tl.float32)
    split_begin = split * tokens_per_split
    split_end = tl.minimum(split_begin + tokens_per_split, tokens)
    first_tokens = split_begin + tl.arange(0, depth).to(tl.int64)
    row_starts = gathered_rows.to(tl.int64) * gathered_stride + split_begin
    gathered_pointers = gathered + row_starts[:, None] + tl.arange(0, depth)[None, :]
    shared_pointers = shared + (first_tokens * shared_width)[:, None] + (owner * block + shared_lanes)[None, :]
    for start in range(split_begin, split_end, depth):
        inside = start + tl.arange(0, depth) < tokens
        gathered_tile = tl.load(gathered_pointers, mask=present[:, None], other=0.0)
        shared_tile = tl.load(shared_pointers, mask=inside[:, None], other=0.0)
        accumulator = tl.dot(gathered_tile, shared_tile, accumulator, input_precision=precision)
        gathered_pointers += depth
        shared_pointers += depth * shared_width
    if norms:
        store_norms(accumulator, out, slots, first, end, block, pack, False)
        return
    store_blocks(accumulator, out, slot, present, split.to(tl.int64) * blocks, block, pack, shared_is_input, False)


@jit
def weight_grad_descriptor_kernel(
    shared: tl.tensor,
    gathered: tl.tensor,
    out: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    shared_index: tl.tensor,
    gathered_index: tl.tensor,
    owners: tl.tensor,
    works: tl.tensor,
    blocks: tl.tensor,
    gathered_width: tl.tensor,
    tokens: tl.tensor,
    tokens_per_split: tl.tensor,
    block: tl.constexpr,
    depth: tl.constexpr,
    pack: tl.constexpr,
    owner_span: tl.constexpr,
    shared_is_input: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """As the gather kernel, with descriptors and ``pack`` of 1 or 2; ``depth`` divides ``tokens_per_split``."""
    work = tl.program_id(0) % works
    split = tl.program_id(0) // works
    if pack == 1:
        slot = tl.load(slots + work)
        owner = tl.load(shared_index + slot)
        second_slot = slot
        present = True
    else:
        owner, first = find_work(offsets, owners, work, pack, owner_span)
        if owner >= owners:
            return
        slot = tl.load(slots + first)
        present = first + 1 < tl.load(offsets + owner + 1)
        second_slot = tl.load(slots + first + 1, mask=present, other=0)
    column = tl.load(gathered_index + slot) * block
    second_column = tl.where(present, tl.load(gathered_index + second_slot) * block, gathered_width)
    accumulator = tl.zeros((block, block), dtype=tl.float32)
    second = tl.zeros((block, block), dtype=tl.float32)
    split_begin = split * tokens_per_split
    split_end = tl.minimum(split_begin + tokens_per_split, tokens)
    for start in range(split_begin, split_end, depth):
        shared_tile = shared.load([start, owner * block])
        gathered_tile = gathered.load([start, column])
        accumulator = block_product(shared_tile, gathered_tile, accumulator, shared_is_input, precision)
        if pack == 2:
            second_tile = gathered.load([start, second_column])
            second = block_product(shared_tile, second_tile, second, shared_is_input, precision)
    lanes = tl.arange(0, block)
    inner = lanes[:, None] * block + lanes[None, :]
    target = out + (split.to(tl.int64) * blocks + slot) * (block * block)
    tl.store(target + inner, accumulator.to(out.dtype.element_ty))
    if pack == 2:
        target = out + (split.to(tl.int64) * blocks + second_slot) * (block * block)
        tl.store(target + inner, second.to(out.dtype.element_ty), mask=present)


@jit
def block_product(
    shared_tile: tl.tensor,
    gathered_tile: tl.tensor,
    accumulator: tl.tensor,
    shared_is_input: tl.constexpr,
    precision: tl.constexpr,
) -> tl.tensor:
    """``accumulator`` plus the gradient block ``[out, in]`` of two ``[tokens, block]`` tiles."""
    if shared_is_input:
        accumulator = tl.dot(gathered_tile.T, shared_tile, accumulator, input_precision=precision)
    else:
        accumulator = tl.dot(shared_tile.T, gathered_tile, accumulator, input_precision=precision)
    return accumulator


@jit
def sum_splits_kernel(
    parts: tl.tensor,
    out: tl.tensor,
    elements: tl.tensor,
    splits: tl.tensor,
    width: tl.constexpr,
    group: tl.constexpr,
) -> None:
    """``out [elements]`` is the sum of float32 ``parts [splits, elements]``, always in the same order.

    ``group`` parts are loaded at a time: one after another, each would wait for its own turn in memory.
    """
    lanes = tl.program_id(0).to(tl.int64) * width + tl.arange(0, width)
    inside = (lanes < elements)[None, :]
    total = tl.zeros((group, width), dtype=tl.float32)
    for first in range(0, splits, group):
        split = (first + tl.arange(0, group))[:, None]
        total += tl.load(
            parts + split.to(tl.int64) * elements + lanes[None, :], mask=inside & (split < splits), other=0.0
        )
    tl.store(out + lanes, tl.sum(total, 0).to(out.dtype.element_ty), mask=lanes < elements)
