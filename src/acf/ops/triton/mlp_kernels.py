"""Products with the activation between two layers in their epilogues.

The first layer's product stores the activation's value and slope; the second layer's input gradient is multiplied by
that slope. Neither takes a pass over memory of its own. The activations are those of `acf.ops.activation`.
"""

import triton.language as tl

from acf.ops.triton.jit import jit
from acf.ops.triton.product_kernels import add_bias, sum_blocks


@jit
def gelu_and_slope(x: tl.tensor) -> tl.tensor:
    """``x P(x)`` and ``P(x) + x p(x)``, with P and p the normal distribution and its density.

    The tail of P is 2 to the power of a polynomial in |x|, fitted up to 6 and falling from there on: P is right within
    2e-7, its tail up to 5 within 4e-4 of itself, and there is no division.
    """
    a = tl.abs(x)
    power = -4.672165960073471e-05 + a * (1.2217294170113746e-05 - a * 7.268562853823823e-07)
    power = 0.007586452644318342 + a * (-0.0005029106978327036 + a * power)
    power = -0.4590584337711334 + a * (-0.0528966560959816 + a * power)
    tail = tl.exp2(-0.999999463558197 + a * (-1.1511268615722656 + a * power))
    cumulative = tl.where(x < 0, tail, 1.0 - tail)
    return x * cumulative, cumulative + 0.3989422804014327 * x * tl.exp2(-0.7213475204444817 * x * x)


@jit
def short_gelu_and_slope(x: tl.tensor) -> tl.tensor:
    """`gelu_and_slope` for results in bfloat16: P within 8e-5, and its tail up to 5 within 2e-4 of itself."""
    a = tl.abs(x)
    power = -0.4669073820114136 + a * (-0.0463193915784359 + a * (0.0052973609417676926 - a * 0.0002699187898542732))
    tail = tl.exp2(-1.0002282857894897 + a * (-1.1477888822555542 + a * power))
    cumulative = tl.where(x < 0, tail, 1.0 - tail)
    density = tl.exp2(-1.3257480647361593 - 0.7213475204444817 * x * x)
    return x * cumulative, cumulative + x * density


@jit
def value_and_slope(x: tl.tensor, activation: tl.constexpr, short: tl.constexpr) -> tl.tensor:
    """Value and slope of an activation; with ``short`` as exact as bfloat16 needs it."""
    if activation == "gelu":
        if short:
            value, slope = short_gelu_and_slope(x)
        else:
            value, slope = gelu_and_slope(x)
    elif activation == "relu":
        value, slope = tl.where(x <= 0, 0.0, x), tl.where(x <= 0, 0.0, 1.0)
    else:
        tl.static_assert(activation == "silu" or activation == "gelu_tanh", "no kernel has this activation")
        # x times the logistic function of x, or of a polynomial; exponents are scaled by log2(e).
        if activation == "silu":
            exponent, rise = 1.4426950408889634 * x, 1.0
        else:
            exponent = 2.302208198144325 * x * (1.0 + 0.044715 * x * x)
            rise = 1.5957691216057308 + 0.21406859366286157 * x * x
        gate = 1.0 / (1.0 + tl.exp2(-exponent))
        value = x * gate
        slope = gate + value * (1.0 - gate) * rise
    return value, slope


@jit
def sum_tile(
    x: tl.tensor,
    weight: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    indices: tl.tensor,
    groups: tl.tensor,
    block: tl.constexpr,
    token_tile: tl.constexpr,
    depth: tl.constexpr,
    forward: tl.constexpr,
    swap: tl.constexpr,
    precision: tl.constexpr,
) -> tl.tensor:
    """Group and first token of this program's output tile, and its sums, tokens last with ``swap``."""
    group = tl.program_id(0) % groups
    token = (tl.program_id(0) // groups) * token_tile
    begin = tl.load(offsets + group) * (block // depth)
    end = tl.load(offsets + group + 1) * (block // depth)
    sums = tl.zeros((block, token_tile) if swap else (token_tile, block), dtype=tl.float32)
    sums = sum_blocks(x, weight, slots, indices, begin, end, token, sums, block, depth, forward, swap, precision)
    return group, token, sums


@jit
def product_activation_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    activated: tl.tensor,
    slope: tl.tensor,
    bias: tl.tensor,
    offsets: tl.tensor,
    slots: tl.tensor,
    indices: tl.tensor,
    groups: tl.tensor,
    block: tl.constexpr,
    token_tile: tl.constexpr,
    depth: tl.constexpr,
    swap: tl.constexpr,
    has_bias: tl.constexpr,
    activation: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    """Activation and its slope of ``x [tokens, in]`` times the weight, plus ``bias [out]``; both ``[tokens, out]``.

    Operands as in `product_descriptor_kernel`; the value before the activation stays in float32.
    """
    group, token, hidden = sum_tile(
        x, weight, offsets, slots, indices, groups, block, token_tile, depth, True, swap, precision
    )
    if has_bias:
        hidden = add_bias(hidden, bias, group * block, block, swap)
    value, rise = value_and_slope(hidden, activation, activated.dtype == tl.bfloat16)
    value, rise = value.to(activated.dtype), rise.to(slope.dtype)
    if swap:
        value = value.T
        rise = rise.T
    activated.store([token, group * block], value)
    slope.store([token, group * block], rise)


@jit
def product_scaled_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    scale: tl.tensor,
    out: tl.tensor,
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
    """The input gradient of `product_descriptor_kernel` times ``scale [tokens, in]``."""
    group, token, sums = sum_tile(
        x, weight, offsets, slots, indices, groups, block, token_tile, depth, False, swap, precision
    )
    factor = scale.load([token, group * block])
    if swap:
        factor = factor.T
    result = (sums * factor.to(tl.float32)).to(out.dtype)
    if swap:
        result = result.T
    out.store([token, group * block], result)
