"""A packet as a controller derives it, and the mesh that it sends to."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.lowering.product_index import PACKED, flits_of

Words = NDArray[np.uint32]


@dataclass(frozen=True)
class Mesh:
    """Rows and columns of clusters that a controller sends to."""

    rows: int
    columns: int


@dataclass(frozen=True)
class ControllerPacket:
    """A packet of one line; ``address`` is its first flit in its operand, ``met`` as `Stream.parallel_tiles`."""

    line: int
    kind: int
    k_step: int
    round: int
    row_tile: int
    k_tile: int
    size: int
    address: int
    destinations: int
    met: tuple[int, ...] = ()

    @property
    def flits(self) -> int:
        """Flits of the packet."""
        return int(flits_of(self.size))

    @property
    def packed(self) -> bool:
        """Whether the payload is compressed: positions and non-zeros."""
        return self.size >= PACKED
