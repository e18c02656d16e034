"""Packets and their destinations as lists: which cluster keeps a copy, how far along the line, and in which order."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled


class Copies(NamedTuple):
    """The copies of multicast packets: packet ``p`` has those from ``first[p]`` to ``first[p + 1]``, nearest first.

    By copy: the ``cluster`` that keeps it, and the ``distance`` of its router from the controller (0: the nearest).
    """

    first: NDArray[np.int64]
    cluster: NDArray[np.int32]
    distance: NDArray[np.int32]


@compiled
def copies_of(first: NDArray[np.int64], destinations: NDArray[np.uint64], mesh_rows: int, mesh_columns: int) -> Copies:
    """The copies of all packets; those of line ``l`` lie from ``first[l]`` on, rows before columns.

    ``destinations [packets]``: bit d is set where the router at distance d keeps a copy.
    """
    copy_first = np.zeros(destinations.size + 1, dtype=np.int64)
    for packet in range(destinations.size):
        copy_first[packet + 1] = copy_first[packet]
        remaining = destinations[packet]
        while remaining:
            remaining &= remaining - np.uint64(1)
            copy_first[packet + 1] += 1
    clusters = np.empty(copy_first[-1], dtype=np.int32)
    distances = np.empty(copy_first[-1], dtype=np.int32)
    for line in range(first.size - 1):
        is_row = line < mesh_rows
        for packet in range(first[line], first[line + 1]):
            copy = copy_first[packet]
            for distance in range(mesh_columns if is_row else mesh_rows):
                if (destinations[packet] >> np.uint64(distance)) & np.uint64(1):
                    clusters[copy] = (
                        line * mesh_columns + distance if is_row else distance * mesh_columns + line - mesh_rows
                    )
                    distances[copy] = distance
                    copy += 1
    return Copies(copy_first, clusters, distances)


@compiled
def packets_by_k_step(
    first: NDArray[np.int64], k_step: NDArray[np.int32], k_steps: int, mesh_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All packets by k-step, column controllers before row controllers, and where each k-step begins."""
    lines = first.size - 1
    order = np.empty(k_step.size, dtype=np.int64)
    k_step_first = np.zeros(k_steps + 1, dtype=np.int64)
    cursor = first[:-1].copy()
    filled = 0
    for number in range(k_steps):
        for turn in range(lines):
            line = (turn + mesh_rows) % lines
            while cursor[line] < first[line + 1] and k_step[cursor[line]] == number:
                order[filled] = cursor[line]
                cursor[line] += 1
                filled += 1
        k_step_first[number + 1] = filled
    return order, k_step_first
