"""Transposing operands before they are gathered: blocks of 16 columns become rows, read in whole cache lines."""

import torch
import triton.language as tl
from torch import Tensor

from acf.ops.triton.jit import jit
from acf.ops.triton.launch import Tiled, launch
from acf.ops.triton.support import ceil_div, readable

PADDING = 128
"""Positions are padded to a multiple of this, the deepest k-step of any kernel that reads them."""

TILE_POSITIONS, TILE_CHANNELS = 128, 64


@jit
def transpose_kernel(
    source: tl.tensor, target: tl.tensor, tiles: tl.tensor, positions: tl.constexpr, channels: tl.constexpr
) -> None:
    """One tile of ``source [positions, channels]`` into ``target [channels, positions]``, both as descriptors."""
    position = (tl.program_id(0) // tiles) * positions
    channel = (tl.program_id(0) % tiles) * channels
    target.store([channel, position], source.load([position, channel]).T)


def transposed(x: Tensor) -> Tensor:
    """``x [positions, channels]`` as contiguous ``[channels, positions]``, positions padded with zeros."""
    x = readable(x)
    positions, channels = x.shape
    padded = ceil_div(positions, PADDING) * PADDING
    target = torch.empty((channels, padded), dtype=x.dtype, device=x.device)
    tiles = ceil_div(channels, TILE_CHANNELS)
    launch(
        transpose_kernel,
        ceil_div(padded, TILE_POSITIONS) * tiles,
        (Tiled(x, [TILE_POSITIONS, TILE_CHANNELS]), Tiled(target, [TILE_CHANNELS, TILE_POSITIONS])),
        (tiles,),
        positions=TILE_POSITIONS, channels=TILE_CHANNELS, num_warps=4, num_stages=1,
    )  # fmt: skip
    return target
