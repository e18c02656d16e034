"""Energy, leakage and area of on-chip memories, from CACTI 7 (22 to 65 nm, one read-write port)."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from math import exp, log

from acf.errors import ArchitectureError

SOURCE = "CACTI 7, one read-write port, low-standby-power cells"

_ACCESSES: dict[int, tuple[tuple[int, int, float, float], ...]] = {
    22: (
        (4096, 16, 1.590, 2.179),
        (16384, 32, 5.388, 7.839),
        (65536, 32, 13.622, 14.346),
        (262144, 64, 50.716, 53.863),
        (1048576, 64, 116.452, 119.599),
    ),
    32: (
        (4096, 16, 2.445, 6.538),
        (16384, 32, 8.089, 24.651),
        (65536, 32, 29.558, 36.460),
        (262144, 64, 111.805, 125.609),
        (1048576, 64, 243.829, 271.991),
    ),
    45: (
        (4096, 16, 4.427, 11.890),
        (16384, 32, 14.316, 44.519),
        (65536, 32, 51.799, 66.239),
        (262144, 64, 199.379, 228.259),
        (1048576, 64, 434.067, 492.850),
    ),
    65: (
        (4096, 16, 8.156, 21.945),
        (16384, 32, 26.122, 81.924),
        (65536, 32, 94.097, 123.565),
        (262144, 64, 347.635, 467.360),
        (1048576, 64, 812.232, 931.956),
    ),
}
"""CACTI 7, for each technology in nm: bytes of the bank, bytes of an access, picojoules of a read and of a write."""

_STATICS: dict[int, tuple[tuple[int, float, float], ...]] = {
    22: (
        (4096, 7.550e-05, 0.00385),
        (16384, 2.725e-04, 0.01415),
        (65536, 9.949e-04, 0.06502),
        (262144, 3.784e-03, 0.24815),
        (1048576, 1.513e-02, 1.11396),
    ),
    32: (
        (4096, 1.245e-04, 0.00723),
        (16384, 4.552e-04, 0.02719),
        (65536, 1.532e-03, 0.10064),
        (262144, 5.859e-03, 0.52564),
        (1048576, 2.327e-02, 1.99983),
    ),
    45: (
        (4096, 9.310e-05, 0.01427),
        (16384, 3.410e-04, 0.05374),
        (65536, 1.161e-03, 0.19894),
        (262144, 4.438e-03, 1.03866),
        (1048576, 1.764e-02, 3.95301),
    ),
    65: (
        (4096, 1.317e-04, 0.02976),
        (16384, 4.829e-04, 0.11216),
        (65536, 1.652e-03, 0.41520),
        (262144, 6.274e-03, 1.60144),
        (1048576, 2.510e-02, 8.25021),
    ),
}
"""CACTI 7, for each technology in nm: bytes of the bank, milliwatts of leakage, square millimetres."""


@cache
def sram_pj_per_byte(technology_nm: int, size_bytes: int, write: bool = False) -> float:
    """Picojoules per byte of an access to one SRAM bank, interpolated log-log in its size, and between nodes.

    Banks smaller than 4 KiB are charged as 4 KiB, larger than 1 MiB as 1 MiB: the table's ends.

    >>> round(sram_pj_per_byte(65, 4096), 3)
    0.51
    """

    def points(node: int) -> list[tuple[int, float]]:
        return [(size, (write_pj if write else read_pj) / width) for size, width, read_pj, write_pj in _ACCESSES[node]]

    return _at_node(technology_nm, size_bytes, points)


@cache
def sram_leakage_mw(technology_nm: int, size_bytes: int) -> float:
    """Milliwatts that one bank leaks, interpolated log-log in its size; low-standby-power cells leak little."""
    return _at_node(technology_nm, size_bytes, lambda node: [(size, leak_mw) for size, leak_mw, _ in _STATICS[node]])


@cache
def sram_mm2(technology_nm: int, size_bytes: int) -> float:
    """Square millimetres of one bank, interpolated log-log in its size."""
    return _at_node(technology_nm, size_bytes, lambda node: [(size, area_mm2) for size, _, area_mm2 in _STATICS[node]])


def _at_node(technology_nm: int, size_bytes: int, points: Callable[[int], list[tuple[int, float]]]) -> float:
    """The figure at a node of the table, or log-log between the two beside it; what lies outside is refused."""
    nodes = list(_ACCESSES)
    if not nodes[0] <= technology_nm <= nodes[-1]:
        raise ArchitectureError(
            f"no SRAM figures for {technology_nm} nm; use one of {', '.join(map(str, nodes))} ({SOURCE}) or between"
        )
    by_node = [(node, _interpolate(points(node), size_bytes)) for node in nodes]
    return _interpolate(by_node, technology_nm)


def _interpolate(points: list[tuple[int, float]], place: int) -> float:
    """Log-log between the table's points; what lies outside is charged as its nearest end."""
    place = min(max(place, points[0][0]), points[-1][0])
    for (low, low_value), (high, high_value) in pairwise(points):
        if place <= high:
            share = log(place / low) / log(high / low)
            return exp(log(low_value) + share * log(high_value / low_value))
    return points[-1][1]
