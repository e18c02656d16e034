"""One matrix product as the fabric runs it: what each memory controller sends, in order, and who takes it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SERIAL, PARALLEL = 0, 1
"""Kinds of packets: a piece of the operand that is walked value by value, or of the one whose rows meet it."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Packets of several controllers, controller by controller, each controller's in the order of sending.

    Controller ``c`` sends packets ``first[c]`` up to ``first[c + 1]``. By packet:

    - ``kind``: `SERIAL` or `PARALLEL`;
    - ``step``: number of the reduction step it belongs to, never falling along a stream;
    - ``flits``, and ``destinations``: the routers along the line that keep a copy, as bits;
    - ``row``: the piece's index among rows (serial) or columns (parallel) of the output; ``depth``: along the
      reduction;
    - ``round``: which filling of the accumulators it serves.

    Of serial packets also ``blocks``, uint32 ``[packets, mesh_columns]``: which parallel pieces of the step they meet
    in each cluster, as bits in the order of their arrival. An *item* is one serial packet in one cluster that takes
    it, counted along the stream and, within a packet, along the line: packet ``p`` has items ``item_first[p]`` up to
    ``item_first[p + 1]``; ``item_cycles``, int32 ``[items, units]``, says how long each unit of the cluster is busy.
    """

    first: NDArray[np.int64]
    kind: NDArray[np.uint8]
    k_step: NDArray[np.int32]
    flits: NDArray[np.int32]
    destinations: NDArray[np.uint64]
    row_tile: NDArray[np.int32]
    k_tile: NDArray[np.int32]
    round: NDArray[np.int32]
    parallel_tiles: NDArray[np.uint32]
    item_first: NDArray[np.int64]
    item_cycles: NDArray[np.int32]

    @property
    def packets(self) -> int:
        """Packets of all controllers."""
        return int(self.kind.size)


@dataclass(frozen=True, eq=False)
class Program:
    """One matrix product for a fabric of ``mesh_rows`` x ``mesh_columns`` clusters.

    ``rows`` come from the controllers at the left edge, one for each mesh row; ``columns`` from those at the top.
    ``round_of_k_step``: int32 ``[steps]``. ``round_flits``: int32 ``[rounds, mesh_rows, mesh_columns]``, the flits of
    results that a cluster sends back after a round. ``reduces``: whether the results of a mesh column are
    partial sums, added on their way to its end, instead of pieces of their own.

    ``tile_first_row``, ``tile_rows``: the first output row of every serial piece and how many it has. ``swapped``: the
    serial operand is the right one, so the output is transposed. ``split``: groups of mesh columns that each hold a
    part of the partial sums.
    """

    rows: Stream
    columns: Stream
    round_of_k_step: NDArray[np.int32]
    round_flits: NDArray[np.int32]
    reduces: bool
    tile_first_row: NDArray[np.int64]
    tile_rows: NDArray[np.int32]
    swapped: bool
    split: int = 1

    @property
    def k_steps(self) -> int:
        """Steps of the reduction over all rounds."""
        return int(self.round_of_k_step.size)

    @property
    def rounds(self) -> int:
        """Fillings of the accumulators."""
        return int(self.round_flits.shape[0])
