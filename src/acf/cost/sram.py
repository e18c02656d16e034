"""Energy of on-chip memory accesses, from CACTI 7 (22 to 65 nm, one read-write port)."""

from itertools import pairwise
from math import exp, log

from acf.errors import ArchitectureError

SOURCE = "CACTI 7, one read-write port, low-standby-power cells"

# For each technology in nm: bytes of the bank, bytes of an access, picojoules of a read and of a write.
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


def sram_pj_per_byte(technology_nm: int, size_bytes: int, write: bool = False) -> float:
    """Picojoules per byte of an access to one SRAM bank, interpolated log-log in its size.

    Banks smaller than 4 KiB are charged as 4 KiB, larger than 1 MiB as 1 MiB: the table's ends.

    >>> round(sram_pj_per_byte(65, 4096), 3)
    0.51
    """
    if technology_nm not in _ACCESSES:
        raise ArchitectureError(
            f"no SRAM figures for {technology_nm} nm; use one of {', '.join(map(str, _ACCESSES))} ({SOURCE})"
        )
    points = [
        (size, (write_pj if write else read_pj) / width) for size, width, read_pj, write_pj in _ACCESSES[technology_nm]
    ]
    size = min(max(size_bytes, points[0][0]), points[-1][0])
    for (low, low_pj), (high, high_pj) in pairwise(points):
        if size <= high:
            share = log(size / low) / log(high / low)
            return exp(log(low_pj) + share * log(high_pj / low_pj))
    return points[-1][1]
