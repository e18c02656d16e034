"""Epilogues of the warp-specialised products: bias, activation, and the activation's slope as bytes between passes."""

from triton.experimental.gluon import language as gl

from acf.ops.triton.jit import gluon_jit
from acf.ops.triton.warp_specialised_stages import OUTPUTS, QUARTER, TOKENS, quarters_of

SLOPE_STEPS: gl.constexpr = gl.constexpr(200.0)
"""Codes per unit of slope. Slopes lie between -0.13 and 1.13, so a byte holds them with an error of at most 1/400.

In bfloat16 it would be off by up to 1/256 above one and 1/512 below."""

SLOPE_ZERO: gl.constexpr = gl.constexpr(26.0)
"""The code of slope zero."""

NO_SLOPE: gl.constexpr = gl.constexpr(255)
"""The code of a NaN; the largest code of a number is 252."""

SLICE: gl.constexpr = gl.constexpr(32)
"""Tokens that `activate` processes at a time."""

WORDS: gl.constexpr = gl.constexpr(64 * 64 // 4)
"""Words of four slopes of a quarter."""


@gluon_jit
def flattened(quarter: gl.tensor) -> gl.tensor:
    """The elements of ``quarter [64 outputs, 64 tokens]`` in the order in which slopes are stored.

    Of every 32 tokens a thread stores the 16 elements that it accumulates: no data changes threads, and slopes are
    stored and loaded in whole cache lines without passing through shared memory.
    """
    return quarter.reshape([4, 2, 8, 2, 4, 4, 2]).permute((3, 0, 2, 5, 4, 1, 6)).reshape([OUTPUTS * QUARTER])


@gluon_jit
def unflattened(row: gl.tensor, layout: gl.constexpr) -> gl.tensor:
    """The quarter that `flattened` made ``row`` of."""
    quarter = row.reshape([2, 4, 8, 4, 4, 2, 2]).permute((1, 5, 2, 0, 4, 3, 6)).reshape([OUTPUTS, QUARTER])
    return gl.convert_layout(quarter, layout, assert_trivial=True)


@gluon_jit
def slope_place(
    groups: gl.tensor, token: gl.tensor, output: gl.tensor, member: gl.constexpr, block: gl.constexpr
) -> gl.tensor:
    """Offset of a consumer's slopes of the tile at ``token`` and ``output``, in words of four slopes."""
    tile = (token // (TOKENS * 128 // block)).to(gl.int64) * groups + output // block
    return (tile * 2 + member) * (OUTPUTS * TOKENS // 4)


@gluon_jit
def hyperbolic_tangent(x: gl.tensor) -> gl.tensor:
    """The hardware's own tanh, one instruction, right within 5e-4."""
    return gl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], gl.float32, True, 1)


@gluon_jit
def approximate_value_and_slope(x: gl.tensor, activation: gl.constexpr) -> gl.tensor:
    """Value and slope of an activation for results in bfloat16 and slopes in bytes: both share one tanh.

    The normal distribution function is taken as ``0.5 + 0.5 tanh(u)`` like the GELU by tanh, with a cubic ``u`` fitted
    to it, right within 1.5e-4. This epilogue is bound by instructions: the exact form takes twice as many.
    """
    if activation == "relu":
        value, slope = gl.where(x <= 0, 0.0, x), gl.where(x <= 0, 0.0, 1.0)
    else:
        square = x * x
        if activation == "gelu":
            u, rise = x * (0.79879704 + 0.03528505 * square), 1.59759409 + 0.2117103 * square
        elif activation == "gelu_tanh":
            u, rise = x * (0.79788456 + 0.03567741 * square), 1.59576912 + 0.21406444 * square
        else:
            gl.static_assert(activation == "silu", "no kernel has this activation")
            u, rise = 0.5 * x, 1.0
        gate = 0.5 + 0.5 * hyperbolic_tangent(u)
        value = x * gate
        slope = gate + (value - value * gate) * rise
    return value, slope


@gluon_jit
def activate(
    buffers: gl.tensor,
    number: gl.tensor,
    slope: gl.tensor,
    start: gl.tensor,
    dtype: gl.constexpr,
    activation: gl.constexpr,
) -> None:
    """Apply the activation in place to ``buffers[number] [tokens, outputs]`` and store its slope to global memory.

    A loop over 16 elements per thread: fully unrolled, instruction cache misses would cost more than the arithmetic.
    """
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SLICE, 16])
    count: gl.constexpr = buffers.shape[1] // SLICE
    slices = buffers._reinterpret(buffers.dtype, [buffers.shape[0] * count, SLICE, OUTPUTS], buffers.layout)
    for index in range(count):
        place = slices.index(number * count + index)
        hidden = place.permute((1, 0)).load(layout).to(gl.float32)
        value, rise = approximate_value_and_slope(hidden, activation)
        # Adding 2**23 leaves the nearest integer in the lowest bits of the mantissa; a NaN sets all of them.
        codes = (rise * SLOPE_STEPS + (8388608.0 + SLOPE_ZERO)).to(gl.int32, bitcast=True) & 255
        codes = codes.reshape([4, 2, 8, 4, 4, 2]).permute((0, 2, 4, 3, 1, 5)).reshape([OUTPUTS * SLICE])
        even, odd = codes.reshape([OUTPUTS * SLICE // 2, 2]).split()
        low, high = (even | odd << 8).reshape([OUTPUTS * SLICE // 4, 2]).split()
        words = low | high << 16
        offset = start + index * (OUTPUTS * SLICE // 4)
        gl.store(slope + offset + gl.arange(0, OUTPUTS * SLICE // 4, words.type.layout), words)
        gl.thread_barrier()  # all have read
        place.store(value.to(dtype).permute((1, 0)))


@gluon_jit
def load_bias(bias: gl.tensor, output: gl.tensor) -> gl.tensor:
    """A consumer's ``bias[output : output + 64]`` in float32; loaded before the main loop, which hides the latency."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TOKENS, 16])
    return gl.load(bias + output + gl.arange(0, OUTPUTS, gl.SliceLayout(1, layout))).to(gl.float32)


@gluon_jit
def load_slopes(slope: gl.tensor, start: gl.tensor) -> gl.tensor:
    """A consumer's slopes from ``start`` on; loaded before the main loop, which hides the latency."""
    accumulator_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TOKENS, 16])
    pattern = flattened(quarters_of(gl.zeros([OUTPUTS, TOKENS], gl.int32, accumulator_layout))[0])
    even, _ = pattern.reshape([OUTPUTS * QUARTER // 2, 2]).split()
    low, _ = even.reshape([WORDS, 2]).split()
    words: gl.tensor = ()
    for quarter in gl.static_range(4):
        place = quarter * WORDS + gl.arange(0, WORDS, low.type.layout)
        words += (gl.load(slope + start + place),)
    return words


@gluon_jit
def scale(sums: gl.tensor, slopes: gl.tensor, dtype: gl.constexpr) -> gl.tensor:
    """``sums`` times the slopes, in quarters."""
    quarters = quarters_of(sums)
    layout: gl.constexpr = quarters[0].type.layout
    results: gl.tensor = ()
    for quarter in gl.static_range(4):
        words = slopes[quarter]
        low = gl.join(words & 255, words >> 8 & 255)
        high = gl.join(words >> 16 & 255, words >> 24 & 255)
        codes = gl.join(low, high).permute((0, 2, 1)).reshape([OUTPUTS * QUARTER])
        codes = unflattened(codes, layout)
        # The inverse of `activate`: the code as the lowest mantissa bits of a float between 2**23 and 2**24.
        rise = (codes | 0x4B000000).to(gl.float32, bitcast=True) - (8388608.0 + SLOPE_ZERO)
        rise = gl.where(codes == NO_SLOPE, float("nan"), rise * (1.0 / SLOPE_STEPS))
        results += ((quarters[quarter] * rise).to(dtype),)
        gl.thread_barrier()  # a quarter at a time
    return results
