"""Where the tile of every packet lies in its operand as memory holds it, which packets fetch a tile for the first time,
and which bank of on-chip memory has it.

Memory holds an operand as its present tiles, one behind another: block-CSR for weights, tiles of a feature map with
channels innermost for activations and gradients. A product that needs the transpose walks the same tiles by columns.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.lowering import SERIAL, Gemm, Program

Int64s = NDArray[np.int64]

LEFT, RIGHT = 0, 1
"""The operands of a product."""


@dataclass(frozen=True, eq=False)
class TilePlaces:
    """By packet, those of the row controllers before those of the column controllers (`acf.sim.fabric.Traffic`).

    ``operand``: `LEFT` or `RIGHT`; ``place``: the number of its tile in the order in which memory holds that operand,
    absent tiles counted, so that equal places are the same tile. ``tiles``: places of each operand.
    """

    operand: NDArray[np.int8]
    place: Int64s
    tiles: tuple[int, int]

    @classmethod
    def of(cls, program: Program, gemm: Gemm, tile: int) -> "TilePlaces":
        """The places of all packets of ``program``, which computes ``gemm``."""
        kind, row_tile, k_tile = (
            np.concatenate((getattr(program.rows, name), getattr(program.columns, name)))
            for name in ("kind", "row_tile", "k_tile")
        )
        serial = kind == SERIAL
        operand = np.where(serial == program.swapped, RIGHT, LEFT).astype(np.int8)
        rows = row_tile.astype(np.int64)
        rows[serial] = program.tile_first_row[row_tile[serial]] // tile
        place, tiles = np.zeros(rows.size, dtype=np.int64), [0, 0]
        for side in (LEFT, RIGHT):
            mine = operand == side
            place[mine], tiles[side] = _places(gemm, side, rows[mine], k_tile[mine].astype(np.int64), tile)
        return cls(operand, place, (tiles[LEFT], tiles[RIGHT]))

    def first_uses(self, side: int, order: Int64s) -> Int64s:
        """The packets that are the first, in ``order`` of sending, to carry their tile of one operand; by place."""
        packets = order[self.operand[order] == side]
        _, first = np.unique(self.place[packets], return_index=True)
        using: Int64s = packets[first]
        return using

    def banks(self, count: int) -> NDArray[np.int32]:
        """The bank of on-chip memory that has each packet's tile: tiles lie in the banks by turns."""
        base = np.where(self.operand == RIGHT, self.tiles[LEFT], 0)
        return ((base + self.place) % count).astype(np.int32)


def _places(gemm: Gemm, side: int, rows: Int64s, k_tiles: Int64s, tile: int) -> tuple[Int64s, int]:
    """Numbers of tiles in the order of memory, and how many there are.

    The taps of a convolution read the same pixels: along the reduction of the left operand, and along the rows of the
    right one in a weight gradient, channels repeat with every tap. A tile at another tap counts as the same tile,
    although it is shifted by a pixel.
    """
    length = gemm.k
    height = gemm.m if side == LEFT else gemm.n
    if side == LEFT and gemm.phase != "weight_grad":
        length = _channels(gemm.k, gemm.taps, tile)
    if side == RIGHT and gemm.phase == "weight_grad":
        height = _channels(gemm.n, gemm.taps, tile)
    k_count, row_count = -(-length // tile), -(-height // tile)
    rows, k_tiles = rows % row_count, k_tiles % k_count
    place = k_tiles * row_count + rows if gemm.transposed[side] else rows * k_count + k_tiles
    return place, row_count * k_count


def _channels(length: int, taps: int, tile: int) -> int:
    """Channels of ``length`` = taps x channels; all of it where a tile would mix the channels of two taps."""
    channels = length // max(1, taps)
    return channels if channels % tile == 0 else length
