"""What a long run costs this process: memory, open files, and time."""

import gc
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MIB = 1 << 20


@dataclass(frozen=True)
class Footprint:
    """Resident memory in bytes, and open files."""

    resident_bytes: int
    open_files: int

    @classmethod
    def now(cls) -> "Footprint":
        """Of this process, after a collection."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd")))


@dataclass(frozen=True)
class Load:
    """One load: how many of what were made in how many seconds, and what grew after the first tenth of them.

    ``figures`` are those that a long run could spoil; ``wrong`` names what was lost, reordered or out of bounds.
    """

    what: str
    count: int
    seconds: float
    grown_mib: float
    grown_files: int
    figures: dict[str, float]
    wrong: list[str]

    @property
    def per_second(self) -> float:
        """Throughput."""
        return self.count / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"per_second": self.per_second}


def in_tenths(count: int, work: Callable[[int], None]) -> tuple[float, Footprint, Footprint]:
    """Call ``work`` with parts of ``count``: the seconds, and the footprints after the first tenth and at the end."""
    sizes = [count * (place + 1) // 10 - count * place // 10 for place in range(10)]
    started = time.perf_counter()
    work(sizes[0])
    early = Footprint.now()
    for size in sizes[1:]:
        work(size)
    return time.perf_counter() - started, early, Footprint.now()
