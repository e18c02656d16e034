"""Playing a program on either engine: its cycles, and what every SCU did with them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.errors import ArchitectureError
from acf.lowering import FabricShape, Program
from acf.sim.fabric.engine import play_program
from acf.sim.fabric.stepper import step_program
from acf.sim.fabric.traffic import FRACTION_BITS, REASONS, Timing, Traffic

ENGINES: dict[str, Callable[[Traffic, Timing, NDArray[np.int64]], int]] = {"fast": play_program, "exact": step_program}
"""fast: the event engine; exact: the stepper, every queue in every cycle. They agree to the cycle."""


@dataclass(frozen=True)
class DramPort:
    """DRAM as the controller of one mesh row sees it: its bandwidth, and the latency of a read."""

    bytes_per_cycle: float
    latency_cycles: int


@dataclass(frozen=True, eq=False)
class Played:
    """``scu_cycles``: int64 ``[scus, reasons]`` by `REASONS`; every row adds up to ``cycles``."""

    cycles: int
    scu_cycles: NDArray[np.int64]

    @property
    def by_reason(self) -> dict[str, int]:
        """SCU cycles of the whole fabric by what they were spent on."""
        return {reason: int(self.scu_cycles[:, index].sum()) for index, reason in enumerate(REASONS)}


def play(
    program: Program, shape: FabricShape, dram: DramPort | None = None, dram_bytes: int = 0, engine: str = "fast"
) -> Played:
    """Play ``program`` on a fabric; ``dram_bytes`` come from DRAM, in proportion to the size of the row packets."""
    if shape.interconnect == "packet":
        raise ArchitectureError(
            'play knows lines, not interconnect "packet"; use acf.simulate, or acf.sim.fabric.packet_stepper'
        )
    if engine not in ENGINES:
        raise ArchitectureError(f"engine {engine!r} is not one of {', '.join(ENGINES)}; use one of these names")
    scu_cycles = np.zeros((shape.scus, len(REASONS)), dtype=np.int64)
    traffic = Traffic.of(program, dram_ticks(program, dram, dram_bytes))
    timing = Timing.of(shape, dram.latency_cycles if dram else 0)
    cycles = ENGINES[engine](traffic, timing, scu_cycles)
    return Played(int(cycles), scu_cycles)


def dram_ticks(program: Program, dram: DramPort | None, dram_bytes: int) -> NDArray[np.int64]:
    """DRAM time of every row packet in units of 2**-FRACTION_BITS cycles, int64 ``[packets]``."""
    flits = program.rows.flits.astype(np.int64)
    if dram is None or not dram_bytes or not flits.size:
        return np.zeros(flits.size, dtype=np.int64)
    ticks_per_flit = dram_bytes / int(flits.sum()) / dram.bytes_per_cycle * 2**FRACTION_BITS
    ticks: NDArray[np.int64] = np.maximum(1, np.rint(flits * ticks_per_flit)).astype(np.int64)
    return ticks
