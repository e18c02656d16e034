"""Kernels of the product of a dense matrix with a block-sparse weight.

One kernel serves two passes. ``out[t, group] = sum over the group's blocks of x[t, index] @ block``, where a group
is a block row and the block is transposed (``forward``), or a block column and it is used as stored (input
gradient). All kernels load weights as they are stored; the matrix unit transposes while reading shared memory.
"""

import triton.language as tl

from acf.ops.triton.jit import jit


@jit
def multiply(
    x_tile: tl.tensor,
    weight_tile: tl.tensor,
    accumulator: tl.tensor,
    forward: tl.constexpr,
    swap: tl.constexpr,
    precision: tl.constexpr,
) -> tl.tensor:
    """``accumulator`` plus x ``[tokens, depth]`` times a weight tile as stored.

    ``swap`` puts the block on the matrix unit's fixed dimension of 64 and tokens on its wide one: for blocks of
    64 that halves the shared-memory reads per multiplication.
    """
    weight_by_output = weight_tile if forward else weight_tile.T
    if swap:
        accumulator = tl.dot(weight_by_output, x_tile.T, accumulator, input_precision=precision)
    else:
        accumulator = tl.dot(x_tile, weight_by_output.T, accumulator, input_precision=precision)
    return accumulator


@jit
def sum_blocks(
    x: tl.tensor,
    weight: tl.tensor,
    slots: tl.tensor,
    indices: tl.tensor,
    begin: tl.tensor,
    end: tl.tensor,
    token: tl.tensor,
    accumulator: tl.tensor,
    block: tl.constexpr,
    depth: tl.constexpr,
    forward: tl.constexpr,
    swap: tl.constexpr,
    precision: tl.constexpr,
    first_index: tl.tensor = 0,
) -> tl.tensor:
    """``accumulator`` plus the products of one group: k-steps ``begin`` to ``end``, each ``depth`` columns of a block.

    Operands are tensor descriptors; ``first_index`` is the index of the first block of x. Indices are loaded one step
    ahead: a load that depends on another load in the same step would take pipeline stages away from the operands.
    """
    chunks: tl.constexpr = block // depth
    slot = tl.load(slots + begin // chunks, mask=begin < end, other=0)
    column = (tl.load(indices + slot) - first_index) * block
    for step in range(begin, end):
        inner = (step % chunks) * depth
        x_tile = x.load([token, column + inner])
        weight_tile = weight.load([slot * block, inner]) if forward else weight.load([slot * block + inner, 0])
        accumulator = multiply(x_tile, weight_tile, accumulator, forward, swap, precision)
        slot = tl.load(slots + (step + 1) // chunks, mask=step + 1 < end, other=0)
        column = (tl.load(indices + slot) - first_index) * block
    return accumulator


@jit
def add_bias(
    accumulator: tl.tensor, bias: tl.tensor, first: tl.tensor, block: tl.constexpr, swap: tl.constexpr
) -> tl.tensor:
    """``accumulator`` of one output tile plus ``bias[first : first + block]``; outputs are its rows with ``swap``."""
    shift = tl.load(bias + first + tl.arange(0, block)).to(tl.float32)
    if swap:
        accumulator += shift[:, None]
    else:
        accumulator += shift[None, :]
    return accumulator


@jit
def product_descriptor_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    bias: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    indices: tl.tensor,
    groups: tl.tensor,
    x_width: tl.tensor,
    weight_height: tl.tensor,
    block: tl.constexpr,
    token_tile: tl.constexpr,
    depth: tl.constexpr,
    pack: tl.constexpr,
    forward: tl.constexpr,
    swap: tl.constexpr,
    has_bias: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """Operands as tensor descriptors: ``x [tokens, x_width]``, ``weight [nnz * block, block]``, ``out``.

    ``bias [groups * block]`` is a pointer, read only with ``has_bias``.

    A k-step multiplies ``depth`` columns of a block, or ``pack`` whole blocks. Coordinates past a tensor read zeros
    and are not written, so neither the last token tile nor the last, partly filled step needs a mask.
    """
    group = tl.program_id(0) % groups  # groups vary fastest: programs in flight share rows of x in L2
    token = (tl.program_id(0) // groups) * token_tile
    chunks: tl.constexpr = block // depth
    begin = tl.load(offsets + group) * chunks
    end = tl.load(offsets + group + 1) * chunks
    if swap:
        accumulator = tl.zeros((block, token_tile), dtype=tl.float32)
    else:
        accumulator = tl.zeros((token_tile, block), dtype=tl.float32)
    if pack == 1:
        accumulator = sum_blocks(
            x, weight, slots, indices, begin, end, token, accumulator, block, depth, forward, swap, precision
        )
    else:
        for start in range(begin, end, pack):
            for part in tl.static_range(pack):
                present = start + part < end
                slot = tl.load(slots + start + part, mask=present, other=0)
                column = tl.where(present, tl.load(indices + slot) * block, x_width)
                x_tile = x.load([token, column])
                weight_tile = weight.load([tl.where(present, slot * block, weight_height), 0])
                accumulator = multiply(x_tile, weight_tile, accumulator, forward, swap, precision)
    if has_bias:
        accumulator = add_bias(accumulator, bias, group * block, block, swap)
    result = accumulator.to(out.dtype)
    if swap:
        result = result.T
    out.store([token, group * block], result)


@jit
def product_transposed_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    bias: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    indices: tl.tensor,
    groups: tl.tensor,
    block: tl.constexpr,
    token_tile: tl.constexpr,
    forward: tl.constexpr,
    has_bias: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """As the descriptor kernel with whole blocks as k-steps, from the transpose ``x [x_width, tokens]``.

    16 columns of x are sectors of 32 bytes, which the copy engine fetches singly; 16 rows of the transpose are whole
    cache lines.
    """
    group = tl.program_id(0) % groups
    token = (tl.program_id(0) // groups) * token_tile
    begin = tl.load(offsets + group)
    end = tl.load(offsets + group + 1)
    accumulator = tl.zeros((token_tile, block), dtype=tl.float32)
    slot = tl.load(slots + begin, mask=begin < end, other=0)
    column = tl.load(indices + slot) * block
    for step in range(begin, end):
        x_tile = x.load([column, token]).T
        weight_tile = weight.load([slot * block, 0])
        accumulator = multiply(x_tile, weight_tile, accumulator, forward, False, precision)
        slot = tl.load(slots + step + 1, mask=step + 1 < end, other=0)
        column = tl.load(indices + slot) * block
    if has_bias:
        accumulator = add_bias(accumulator, bias, group * block, block, False)
    out.store([token, group * block], accumulator.to(out.dtype))


@jit
def product_gather_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    bias: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    indices: tl.tensor,
    groups: tl.tensor,
    tokens: tl.tensor,
    x_width: tl.tensor,
    out_width: tl.tensor,
    block: tl.constexpr,
    token_tile: tl.constexpr,
    pack: tl.constexpr,
    forward: tl.constexpr,
    swap: tl.constexpr,
    has_bias: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """Operands as pointers: ``pack`` blocks of a group are gathered into one multiplication of ``pack * block``."""
    group = tl.program_id(0) % groups
    rows = (tl.program_id(0) // groups) * token_tile + tl.arange(0, token_tile)
    row_starts = rows.to(tl.int64) * x_width
    lanes = tl.arange(0, pack * block)
    lane_block, lane_inner = lanes // block, lanes % block
    output_lanes = tl.arange(0, block)
    begin = tl.load(offsets + group)
    end = tl.load(offsets + group + 1)
    if swap:
        accumulator = tl.zeros((block, token_tile), dtype=tl.float32)
    else:
        accumulator = tl.zeros((token_tile, block), dtype=tl.float32)
    # Indices are loaded one step ahead, as in the descriptor kernel.
    present = begin + lane_block < end
    slot = tl.load(slots + begin + lane_block, mask=present, other=0)
    index = tl.load(indices + slot, mask=present, other=0)
    for start in range(begin, end, pack):
        # The compiler cannot see that a gathered block is contiguous; without the hint loads are 2 bytes wide.
        columns = tl.max_contiguous(tl.multiple_of(index * block + lane_inner, block), block)
        x_tile = tl.load(
            x + row_starts[:, None] + columns[None, :],
            mask=(rows < tokens)[:, None] & present[None, :],
            other=0.0,
        )
        slot_start = slot.to(tl.int64) * (block * block)
        if forward:
            weight_columns = tl.max_contiguous(tl.multiple_of(slot_start + lane_inner, block), block)
            weight_tile = tl.load(
                weight + output_lanes[:, None] * block + weight_columns[None, :],
                mask=present[None, :],
                other=0.0,
            )
        else:
            weight_rows = slot_start + lane_inner * block
            weight_tile = tl.load(
                weight + weight_rows[:, None] + output_lanes[None, :], mask=present[:, None], other=0.0
            )
        accumulator = multiply(x_tile, weight_tile, accumulator, forward, swap, precision)
        present = start + pack + lane_block < end
        slot = tl.load(slots + start + pack + lane_block, mask=present, other=0)
        index = tl.load(indices + slot, mask=present, other=0)
    if has_bias:
        accumulator = add_bias(accumulator, bias, group * block, block, swap)
    result = accumulator.to(out.dtype.element_ty)
    if swap:
        result = result.T
    target = out + rows.to(tl.int64)[:, None] * out_width + (group * block + output_lanes)[None, :]
    tl.store(target, result, mask=(rows < tokens)[:, None])
