"""The addresses of one product in DRAM, in the order in which the fabric's controllers ask for them.

A tile crosses the pins once, with the first packet that carries it; later packets find it on chip. Its operand lies in
memory as its tiles one behind another (`acf.sim.fabric.tile_places`), so a tile begins anywhere in a burst, and a
controller that reads two tiles in a row reads the burst they share once. Tensors that must make room are written back
meanwhile, in order of their addresses.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.sim.fabric.tile_places import LEFT, RIGHT, TilePlaces
from acf.sim.memory import DramTraffic

Int64s = NDArray[np.int64]

REGION_BYTES = 1 << 16
"""Operands and write-backs begin at multiples of this, as an allocator would place them."""


@dataclass(frozen=True, eq=False)
class DramStream:
    """Packet ``p`` reads ``bursts[first[p] : first[p + 1]]``, numbers of bursts, addresses over their size.

    When it has left, ``write_counts[p]`` write-backs make room, from burst ``write_starts[p]`` on.
    """

    first: Int64s
    bursts: Int64s
    write_starts: Int64s
    write_counts: Int64s

    @property
    def reads(self) -> int:
        """Bursts that are read."""
        return int(self.first[-1])

    @property
    def writes(self) -> int:
        """Bursts that are written."""
        return int(self.write_counts.sum())


@dataclass(frozen=True, eq=False)
class Sent:
    """Packets as they are sent: ``order`` over all controllers, and by packet its ``line`` and ``flits``."""

    order: Int64s
    line: NDArray[np.int32]
    flits: NDArray[np.int32]


def dram_stream(places: TilePlaces, sent: Sent, traffic: DramTraffic, burst_bytes: int) -> DramStream:
    """The bursts of a product whose operands and write-backs are ``traffic``."""
    packets = sent.line.size
    begin, end = np.zeros(packets, dtype=np.int64), np.zeros(packets, dtype=np.int64)
    base = 0
    for side, read_bytes in ((LEFT, traffic.left_bytes), (RIGHT, traffic.right_bytes)):
        fetching = places.first_uses(side, sent.order)
        if read_bytes and fetching.size:
            stops = np.cumsum(sent.flits[fetching].astype(np.float64))
            edges = base + np.rint(np.concatenate(([0.0], stops / stops[-1])) * read_bytes).astype(np.int64)
            begin[fetching], end[fetching] = edges[:-1] // burst_bytes, -(-edges[1:] // burst_bytes)
        base += -(-read_bytes // REGION_BYTES) * REGION_BYTES
    _share_bursts(begin, end, sent)
    counts = np.maximum(0, end - begin)
    first = np.concatenate(([0], np.cumsum(counts)))
    within = np.arange(int(first[-1])) - np.repeat(first[:-1], counts)
    writes = -(-traffic.written_bytes // burst_bytes)
    return DramStream(first, np.repeat(begin, counts) + within, *_spread(writes, sent, base // burst_bytes))


def _share_bursts(begin: Int64s, end: Int64s, sent: Sent) -> None:
    """Leave out the first burst of a tile where the line's tile before it, in the order of sending, ended with it."""
    fetching = sent.order[end[sent.order] > begin[sent.order]]
    by_line = fetching[np.argsort(sent.line[fetching], kind="stable")]
    before, after = by_line[:-1], by_line[1:]
    shared = (sent.line[before] == sent.line[after]) & (end[before] - 1 == begin[after])
    begin[after[shared]] += 1


def _spread(writes: int, sent: Sent, base: int) -> tuple[Int64s, Int64s]:
    """Write-backs from burst ``base`` on, dealt out evenly to packets in order: first burst and number, by packet."""
    packets = sent.line.size
    edges = np.arange(packets + 1, dtype=np.int64) * writes // max(1, packets)
    starts, counts = np.zeros((2, packets), dtype=np.int64)
    starts[sent.order], counts[sent.order] = base + edges[:-1], np.diff(edges)
    return starts, counts
