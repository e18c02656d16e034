"""im2col over packed bits: the channels of a pixel are packed once, and a window is a row of such bytes."""

from collections.abc import Iterator
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from acf.lowering.packed_rows import PackedRows
from acf.trace.bits import BoolArray
from acf.trace.op import TracedConv

T = TypeVar("T", bound=np.generic)


def window_rows(maps: BoolArray, conv: TracedConv) -> PackedRows:
    """im2col of ``[batch, channels, h, w]``: rows ``[batch*oh*ow, kh*kw*channels]``, channels innermost."""
    padding = ((0, 0), *((pad, pad) for pad in conv.padding), (0, 0))
    padded = np.pad(_channel_values(maps), padding)
    return joined_taps(list(tap_views(padded, conv)), maps.shape[1])


def window_columns(maps: BoolArray, conv: TracedConv) -> PackedRows:
    """The transpose of `window_rows`: ``[kh*kw*channels, batch*oh*ow]``, packed along the output pixels."""
    padding = ((0, 0), (0, 0), *((pad, pad) for pad in conv.padding))
    by_channel = np.pad(maps.transpose(1, 0, 2, 3), padding)
    height, width = conv.output_map
    channels, length = maps.shape[1], maps.shape[0] * height * width
    by_map = by_channel.reshape(channels * maps.shape[0], *by_channel.shape[2:], 1)
    taps = [np.packbits(view.reshape(channels, length), axis=1, bitorder="little") for view in tap_views(by_map, conv)]
    return PackedRows.from_bytes(np.concatenate(taps), length)


def pixel_columns(maps: BoolArray) -> PackedRows:
    """``[batch, channels, h, w]`` as ``[channels, batch*h*w]``, packed along the pixels."""
    batch, channels, height, width = maps.shape
    return PackedRows.from_bool(maps.transpose(1, 0, 2, 3).reshape(channels, batch * height * width))


def gathered_rows(maps: BoolArray, rows: list[NDArray[np.int64]], cols: list[NDArray[np.int64]]) -> PackedRows:
    """Pixels of ``[batch, channels, h, w]`` gathered at every pair of ``rows`` and ``cols``, a tap each; -1 reads 0."""
    bordered = np.pad(_channel_values(maps), ((0, 0), (0, 1), (0, 1), (0, 0)))
    taps = [bordered[:, row[:, None], col[None, :]] for row in rows for col in cols]
    return joined_taps(taps, maps.shape[1])


def joined_taps(taps: list[NDArray[T]], channels: int) -> PackedRows:
    """Concatenate taps ``[batch, oh, ow, values]`` (bytes of eight channels, or bools) in the row of each window."""
    stacked = np.stack(taps, axis=3)
    joined = stacked.reshape(prod(stacked.shape[:3]), prod(stacked.shape[3:]))
    if joined.dtype == np.uint8:
        return PackedRows.from_bytes(joined.view(np.uint8), len(taps) * channels)
    return PackedRows.from_bool(joined.view(np.bool_))


def _channel_values(maps: BoolArray) -> NDArray[np.uint8] | BoolArray:
    """``[batch, h, w, channels]``: bytes of eight channels if 8 divides their number, else bools."""
    by_pixel = np.ascontiguousarray(maps.transpose(0, 2, 3, 1))
    return by_pixel if maps.shape[1] % 8 else np.packbits(by_pixel, axis=3, bitorder="little")


def tap_views(padded: NDArray[T], conv: TracedConv) -> Iterator[NDArray[T]]:
    """For each tap, the values ``[maps, oh, ow, values]`` that it reads from padded ``[maps, h, w, values]``."""
    height, width = conv.output_map
    for row in range(conv.kernel_size[0]):
        for col in range(conv.kernel_size[1]):
            rows = padded[:, row * conv.dilation[0] :: conv.stride[0]]
            yield rows[:, :height, col * conv.dilation[1] :: conv.stride[1]][:, :, :width]
