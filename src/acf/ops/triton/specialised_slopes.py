"""The GELU between two layers within a specialised product, and its slope as bytes between the passes."""

from triton.experimental.gluon import language as gl

from acf.ops.triton.gelu_kernels import short_gelu_and_slope
from acf.ops.triton.jit import gluon_jit
from acf.ops.triton.specialised_stages import OUTPUTS, PIECE, TOKENS, pieces_of

gelu_with_slope = gluon_jit(short_gelu_and_slope.fn)

SLOPE_STEPS: gl.constexpr = gl.constexpr(200.0)
"""Steps of the GELU's slope, which lies between -0.13 and 1.13, to one: a byte is off by 1/400 at most.

In bfloat16 it would be off by up to 1/256 above one and 1/512 below."""

SLOPE_ZERO: gl.constexpr = gl.constexpr(26.0)
"""The byte of a slope of zero."""

NO_SLOPE: gl.constexpr = gl.constexpr(255)
"""The byte of a slope that is not a number; the largest of one that is, is 252."""

SLICE: gl.constexpr = gl.constexpr(32)
"""Tokens that the GELU is taken of at a time."""

WORDS: gl.constexpr = gl.constexpr(64 * 64 // 4)
"""Words of four slopes of a piece."""


@gluon_jit
def flattened(piece: gl.tensor) -> gl.tensor:
    """The elements of ``piece [64 outputs, 64 tokens]`` in the order in which slopes are stored.

    Of every 32 tokens each thread has 16 elements in turn, those that it holds as sums: nothing moves, and slopes are
    stored and loaded in whole lines, without a way through shared memory.
    """
    return piece.reshape([4, 2, 8, 2, 4, 4, 2]).permute((3, 0, 2, 5, 4, 1, 6)).reshape([OUTPUTS * PIECE])


@gluon_jit
def unflattened(row: gl.tensor, layout: gl.constexpr) -> gl.tensor:
    """The piece that `flattened` made ``row`` of."""
    piece = row.reshape([2, 4, 8, 4, 4, 2, 2]).permute((1, 5, 2, 0, 4, 3, 6)).reshape([OUTPUTS, PIECE])
    return gl.convert_layout(piece, layout, assert_trivial=True)


@gluon_jit
def slope_place(
    groups: gl.tensor, token: gl.tensor, output: gl.tensor, member: gl.constexpr, block: gl.constexpr
) -> gl.tensor:
    """Where the slopes of one group of warps begin, of the tile at ``token`` and ``output``; in words of four."""
    tile = (token // (TOKENS * 128 // block)).to(gl.int64) * groups + output // block
    return (tile * 2 + member) * (OUTPUTS * TOKENS // 4)


@gluon_jit
def activate(buffers: gl.tensor, number: gl.tensor, slope: gl.tensor, start: gl.tensor, dtype: gl.constexpr) -> None:
    """Put the GELU in the place of what ``buffers[number] [tokens, outputs]`` holds; its slope goes to memory.

    A loop, and no longer than its 16 numbers of each thread: written out for all of them it takes the multiprocessor
    longer to fetch the instructions than to carry them out.
    """
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SLICE, 16])
    count: gl.constexpr = buffers.shape[1] // SLICE
    slices = buffers._reinterpret(buffers.dtype, [buffers.shape[0] * count, SLICE, OUTPUTS], buffers.layout)
    for index in range(count):
        place = slices.index(number * count + index)
        hidden = place.permute((1, 0)).load(layout).to(gl.float32)
        value, rise = gelu_with_slope(hidden)
        # Added to 2 to the 23rd, the nearest whole number is in the lowest bits; of a NaN all of them are set.
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
def load_slopes(slope: gl.tensor, start: gl.tensor) -> gl.tensor:
    """The words of slopes of a group of warps from ``start`` on, asked for before its sums are begun."""
    accumulator_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TOKENS, 16])
    pattern = flattened(pieces_of(gl.zeros([OUTPUTS, TOKENS], gl.int32, accumulator_layout))[0])
    even, _ = pattern.reshape([OUTPUTS * PIECE // 2, 2]).split()
    low, _ = even.reshape([WORDS, 2]).split()
    words: gl.tensor = ()
    for piece in gl.static_range(4):
        place = piece * WORDS + gl.arange(0, WORDS, low.type.layout)
        words += (gl.load(slope + start + place),)
    return words


@gluon_jit
def scale(sums: gl.tensor, slopes: gl.tensor, dtype: gl.constexpr) -> gl.tensor:
    """``sums`` times the slopes, in pieces."""
    pieces = pieces_of(sums)
    layout: gl.constexpr = pieces[0].type.layout
    results: gl.tensor = ()
    for piece in gl.static_range(4):
        words = slopes[piece]
        low = gl.join(words & 255, words >> 8 & 255)
        high = gl.join(words >> 16 & 255, words >> 24 & 255)
        codes = gl.join(low, high).permute((0, 2, 1)).reshape([OUTPUTS * PIECE])
        codes = unflattened(codes, layout)
        # As the lowest bits of a number between 2 to the 23rd and 24th they stand for themselves.
        rise = (codes | 0x4B000000).to(gl.float32, bitcast=True) - (8388608.0 + SLOPE_ZERO)
        rise = gl.where(codes == NO_SLOPE, float("nan"), rise * (1.0 / SLOPE_STEPS))
        results += ((pieces[piece] * rise).to(dtype),)
        gl.thread_barrier()  # a piece at a time
    return results
