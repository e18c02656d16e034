"""Products of a gated pair of layers, ``activation(gate(x)) * up(x)``, with all that surrounds them in their epilogues.

The factors of the backward pass are those of `acf.ops.gated`.
"""

import triton.language as tl

from acf.ops.triton.jit import jit
from acf.ops.triton.mlp_kernels import sum_tile, value_and_slope
from acf.ops.triton.product_kernels import add_bias, sum_blocks


@jit
def gate_values(gate: tl.tensor, up: tl.tensor, activation: tl.constexpr, short: tl.constexpr) -> tl.tensor:
    """The gated product ``activation(gate) * up``, and the factors of the gradients of gate and up; all float32."""
    value, slope = value_and_slope(gate, activation, short)
    return value * up, slope * up, value


@jit
def store_tile(out: tl.tensor, token: tl.tensor, column: tl.tensor, tile: tl.tensor, swap: tl.constexpr) -> None:
    """Store a tile of sums, whose tokens are last with ``swap``, through the descriptor ``out``."""
    result = tile.to(out.dtype)
    if swap:
        result = result.T
    out.store([token, column], result)


@jit
def gated_kernel(
    x: tl.tensor,
    gate_weight: tl.tensor,
    up_weight: tl.tensor,
    hidden: tl.tensor,
    gate_factor: tl.tensor,
    up_factor: tl.tensor,
    gate_bias: tl.tensor,
    up_bias: tl.tensor,
    gate_offsets: tl.tensor,
    gate_slots: tl.tensor,
    gate_indices: tl.tensor,
    up_offsets: tl.tensor,
    up_slots: tl.tensor,
    up_indices: tl.tensor,
    groups: tl.tensor,
    block: tl.constexpr,
    token_tile: tl.constexpr,
    depth: tl.constexpr,
    swap: tl.constexpr,
    has_gate_bias: tl.constexpr,
    has_up_bias: tl.constexpr,
    activation: tl.constexpr,
    factors: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """Both products of ``x [tokens, in]`` for one output tile; ``hidden`` and, with ``factors``, both factors.

    ``x``, weights and results are tensor descriptors, as in `product_descriptor_kernel`; biases are pointers.
    """
    group, token, gate = sum_tile(
        x, gate_weight, gate_offsets, gate_slots, gate_indices, groups, block, token_tile, depth, True, swap, precision
    )
    group, token, up = sum_tile(
        x, up_weight, up_offsets, up_slots, up_indices, groups, block, token_tile, depth, True, swap, precision
    )
    column = group * block
    if has_gate_bias:
        gate = add_bias(gate, gate_bias, column, block, swap)
    if has_up_bias:
        up = add_bias(up, up_bias, column, block, swap)
    passed, to_gate, to_up = gate_values(gate, up, activation, hidden.dtype == tl.bfloat16)
    store_tile(hidden, token, column, passed, swap)
    if factors:
        store_tile(gate_factor, token, column, to_gate, swap)
        store_tile(up_factor, token, column, to_up, swap)


@jit
def gated_input_grad_kernel(
    output_grad: tl.tensor,
    weight: tl.tensor,
    gate_factor: tl.tensor,
    up_factor: tl.tensor,
    gate_grad: tl.tensor,
    up_grad: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    indices: tl.tensor,
    groups: tl.tensor,
    block: tl.constexpr,
    token_tile: tl.constexpr,
    depth: tl.constexpr,
    swap: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """The input gradient of the layer after the gate, times each factor; all ``[tokens, hidden]`` are descriptors."""
    group, token, sums = sum_tile(
        output_grad, weight, offsets, slots, indices, groups, block, token_tile, depth, False, swap, precision
    )
    to_gate = gate_factor.load([token, group * block])
    if swap:
        to_gate = to_gate.T
    store_tile(gate_grad, token, group * block, sums * to_gate.to(tl.float32), swap)
    to_up = up_factor.load([token, group * block])
    if swap:
        to_up = to_up.T
    store_tile(up_grad, token, group * block, sums * to_up.to(tl.float32), swap)


@jit
def pair_input_grad_kernel(
    gate_grad: tl.tensor,
    up_grad: tl.tensor,
    gate_weight: tl.tensor,
    up_weight: tl.tensor,
    out: tl.tensor,
    gate_offsets: tl.tensor,
    gate_slots: tl.tensor,
    gate_indices: tl.tensor,
    up_offsets: tl.tensor,
    up_slots: tl.tensor,
    up_indices: tl.tensor,
    groups: tl.tensor,
    block: tl.constexpr,
    token_tile: tl.constexpr,
    depth: tl.constexpr,
    swap: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """The input gradients of gate and up, summed in one accumulator."""
    group, token, sums = sum_tile(
        gate_grad, gate_weight, gate_offsets, gate_slots, gate_indices, groups, block, token_tile, depth, False, swap,
        precision,
    )  # fmt: skip
    begin = tl.load(up_offsets + group) * (block // depth)
    end = tl.load(up_offsets + group + 1) * (block // depth)
    sums = sum_blocks(
        up_grad, up_weight, up_slots, up_indices, begin, end, token, sums, block, depth, False, swap, precision
    )
    store_tile(out, token, group * block, sums, swap)


@jit
def gate_kernel(
    gate: tl.tensor,
    up: tl.tensor,
    hidden: tl.tensor,
    gate_factor: tl.tensor,
    up_factor: tl.tensor,
    count: tl.tensor,
    span: tl.constexpr,
    activation: tl.constexpr,
    factors: tl.constexpr,
) -> None:
    """The epilogue of `gated_kernel` for products that other kernels have stored; all pointers to ``count`` values."""
    place = tl.program_id(0).to(tl.int64) * span + tl.arange(0, span)
    within = place < count
    gate_tile = tl.load(gate + place, mask=within, other=0.0).to(tl.float32)
    up_tile = tl.load(up + place, mask=within, other=0.0).to(tl.float32)
    short: tl.constexpr = hidden.dtype.element_ty == tl.bfloat16
    passed, to_gate, to_up = gate_values(gate_tile, up_tile, activation, short)
    tl.store(hidden + place, passed.to(hidden.dtype.element_ty), mask=within)
    if factors:
        tl.store(gate_factor + place, to_gate.to(hidden.dtype.element_ty), mask=within)
        tl.store(up_factor + place, to_up.to(hidden.dtype.element_ty), mask=within)


@jit
def gate_grad_kernel(
    hidden_grad: tl.tensor,
    gate_factor: tl.tensor,
    up_factor: tl.tensor,
    gate_grad: tl.tensor,
    up_grad: tl.tensor,
    count: tl.tensor,
    span: tl.constexpr,
) -> None:
    """The epilogue of `gated_input_grad_kernel` for a product that another kernel has stored."""
    place = tl.program_id(0).to(tl.int64) * span + tl.arange(0, span)
    within = place < count
    gradient = tl.load(hidden_grad + place, mask=within, other=0.0).to(tl.float32)
    to_gate = tl.load(gate_factor + place, mask=within, other=0.0).to(tl.float32)
    to_up = tl.load(up_factor + place, mask=within, other=0.0).to(tl.float32)
    tl.store(gate_grad + place, (gradient * to_gate).to(gate_grad.dtype.element_ty), mask=within)
    tl.store(up_grad + place, (gradient * to_up).to(up_grad.dtype.element_ty), mask=within)
