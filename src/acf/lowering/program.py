"""The last stage: one matrix product as the fabric runs it, the packets of every memory controller in order."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SERIAL, PARALLEL = 0, 1
"""Kinds of packets. SERIAL: a tile of the operand that is streamed element by element. PARALLEL: a tile of the
stationary operand, whose rows meet the streamed elements."""

KIND_NAMES = ("serial", "parallel")
SHOWN_PACKETS, SHOWN_CONTROLLERS = 4, 8  # of each stream, when a program is printed


@dataclass(frozen=True, eq=False)
class Stream:
    """Packets of several controllers, controller by controller, each controller's in the order of sending.

    Controller ``c`` sends packets ``first[c]`` up to ``first[c + 1]``. By packet:

    - ``kind``: `SERIAL` or `PARALLEL`;
    - ``k_step``: number of its step along the reduction, over all rounds, never falling along a stream;
    - ``flits``, and ``destinations``: the clusters along the line that keep a copy, as bits;
    - ``row_tile`` and ``k_tile``: the coordinates of its tile in the operand; rows of the serial operand are output
      rows, rows of the parallel one are output columns;
    - ``round``: the accumulator round it belongs to.

    Serial packets have ``parallel_tiles``, uint32 ``[packets, mesh_columns]``: the parallel tiles of the k_step that
    they meet in each cluster, as bits in the order of arrival. An *item* is a serial packet in one of its destination
    clusters, counted along the stream and, within a packet, along the line: packet ``p`` has items ``item_first[p]`` up
    to ``item_first[p + 1]``; ``item_cycles``, int32 ``[items, scus_per_cluster]``: how long each SCU is busy with it.
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

    def packet_line(self, packet: int) -> str:
        """One packet in words: its k_step, kind, tile, destinations and flits."""
        bits = int(self.destinations[packet])
        clusters = ",".join(str(place) for place in range(bits.bit_length()) if bits >> place & 1)
        return (
            f"k_step {self.k_step[packet]} round {self.round[packet]}: {KIND_NAMES[self.kind[packet]]} tile "
            f"({self.row_tile[packet]}, {self.k_tile[packet]}) to {{{clusters}}}, {self.flits[packet]} flits"
        )

    def summary(self) -> str:
        """Packets per controller, and the first packets of the first controller that sends any."""
        if not self.packets:
            return "no packets"
        counts = np.diff(self.first)
        sender = int(np.flatnonzero(counts)[0])
        begin, end = int(self.first[sender]), int(self.first[sender + 1])
        shown = "".join(f"\n    {self.packet_line(packet)}" for packet in range(begin, min(begin + SHOWN_PACKETS, end)))
        each = " ".join(str(count) for count in counts[:SHOWN_CONTROLLERS])
        more = " ..." if counts.size > SHOWN_CONTROLLERS else ""
        totals = f"{self.packets} packets, {int(self.flits.sum())} flits; by controller: {each}{more}"
        return f"{totals}; first of controller {sender}:{shown}"


@dataclass(frozen=True, eq=False)
class Program:
    """One matrix product for a fabric of ``mesh_rows`` x ``mesh_columns`` clusters.

    ``rows`` come from the controllers at the left edge, one for each mesh row; ``columns`` from those at the top.
    ``round_of_k_step``: int32 ``[k_steps]``. ``round_flits``: int32 ``[rounds, mesh_rows, mesh_columns]``, the flits of
    results that a cluster sends back after an accumulator round. ``reduces``: the program is split-K, so the results
    of a mesh column are partial sums, added on their way to its end. Otherwise every cluster has its own output tiles.

    ``tile_first_row``, ``tile_rows``: the first output row of every serial tile and how many it has. ``swapped``: the
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
        """Steps along the reduction over all rounds."""
        return int(self.round_of_k_step.size)

    @property
    def rounds(self) -> int:
        """Accumulator rounds: fillings of the accumulators."""
        return int(self.round_flits.shape[0])

    def __str__(self) -> str:
        """A bounded summary: dataflow, mesh, rounds, and the first packets of both streams."""
        _, mesh_rows, mesh_columns = self.round_flits.shape
        split_k = f"split-K over {mesh_rows} mesh rows x {self.split} column groups"
        return (
            f"{split_k if self.reduces else 'output-stationary'} on {mesh_rows} x {mesh_columns} clusters, "
            f"{'right' if self.swapped else 'left'} operand streamed: {self.rounds} rounds, {self.k_steps} k_steps, "
            f"{int(self.round_flits.sum())} result flits\n"
            f"  row controllers: {self.rows.summary()}\n"
            f"  column controllers: {self.columns.summary()}"
        )
