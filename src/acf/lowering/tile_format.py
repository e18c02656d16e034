"""Tiles as they travel: in a compressed form, or all their elements where that is shorter.

| form | content, in this order |
|---|---|
| bitmap | a bit per element, row by row; the non-zeros, in the same order |
| csc | non-zeros of every line, a byte each; all non-zeros line by line; of each its place in its line |

A line is what an SCU reads in one go: a row of a streamed tile, or the row of a block at one place of the reduction. It
is a column of the operand's transpose, hence the name. A place has 4 bits, in tiles of 32 it has 5.
"""

import numpy as np
from numpy.typing import NDArray

from acf.lowering.fabric_shape import VALUE_BYTES, FabricShape


def place_bits(tile: int) -> int:
    """Bits of the place of a non-zero in its line."""
    return 5 if tile > 16 else 4


def packed_bytes(nonzeros: NDArray[np.int64], shape: FabricShape) -> NDArray[np.int64]:
    """Bytes of compressed tiles with so many non-zeros."""
    positions: NDArray[np.int64] | int = shape.tile**2 // 8
    if shape.tile_format == "csc":
        positions = -(-nonzeros * place_bits(shape.tile) // 8) + shape.tile
    return VALUE_BYTES * nonzeros + positions


def is_packed(nonzeros: NDArray[np.int64], shape: FabricShape) -> NDArray[np.bool_]:
    """Whether tiles with so many non-zeros travel compressed."""
    return np.asarray(packed_bytes(nonzeros, shape) <= VALUE_BYTES * shape.tile**2)


def pack_tile(values: NDArray[np.uint16], shape: FabricShape) -> bytes:
    """The compressed form of a tile of bf16 bits ``[tile, tile]``, lines first; a zero of either sign is left out."""
    present = (values & 0x7FFF) != 0
    nonzeros: bytes = values[present].astype("<u2").tobytes()
    if shape.tile_format == "bitmap":
        return np.packbits(present, bitorder="little").tobytes() + nonzeros
    counts, places = present.sum(axis=1).astype(np.uint8), np.nonzero(present)[1]
    bits = places[:, None] >> np.arange(place_bits(shape.tile)) & 1
    told: bytes = np.packbits(bits.astype(bool), bitorder="little").tobytes()
    return bytes(counts) + nonzeros + told
