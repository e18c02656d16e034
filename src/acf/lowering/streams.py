"""Streams of packets, written in two passes of the same loops: one that counts, one that writes."""

from collections.abc import Callable

import numpy as np

from acf.lowering.fabric_shape import FabricShape
from acf.lowering.packets import Packets, PacketWriter
from acf.lowering.program import Stream


def write_streams(
    lines: tuple[int, ...], shape: FabricShape, write: Callable[[list[PacketWriter]], None]
) -> list[Stream]:
    """One stream of ``lines[i]`` controllers for each i; ``write`` is called with a writer for each stream, twice."""
    counting = [_counting_writer(count, shape) for count in lines]
    write(counting)
    streams, writers = [], []
    for counted in counting:
        first, item_first = (np.concatenate(([0], np.cumsum(totals))) for totals in counted[1:3])
        packets = Packets.empty(int(first[-1]), int(item_first[-1]), shape)
        writers.append(PacketWriter(packets, first[:-1].copy(), item_first[:-1], writes=True))
        streams.append(Stream(first, *packets))
    write(writers)
    return streams


def _counting_writer(lines: int, shape: FabricShape) -> PacketWriter:
    nothing = Packets.empty(0, 0, shape)
    return PacketWriter(nothing, np.zeros(lines, dtype=np.int64), np.zeros(lines, dtype=np.int64), writes=False)
