"""Columns of `acf bench simulators`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from acf.bench.columns.formats import NUMBER, SECONDS
from acf.columns import BYTES, Column, si_format, terminal_table

if TYPE_CHECKING:
    from acf.bench.simulators import SimulatorTiming

SIMULATOR: "tuple[Column[SimulatorTiming], ...]" = (
    Column("name", "trace", lambda timing: timing.name),
    Column("architecture", "architecture", lambda timing: timing.architecture, NUMBER),
    Column("dense_macs", "dense MACs", lambda timing: timing.dense_macs, si_format("")),
    Column("seconds", "time", lambda timing: timing.seconds, SECONDS),
    Column("processor_seconds", "processor time", lambda timing: timing.processor_seconds, SECONDS),
    Column("macs_per_s", "dense-equivalent MAC/s", lambda timing: timing.macs_per_s, si_format("/s")),
    Column("peak_memory_bytes", "memory", lambda timing: timing.peak_memory_bytes, BYTES),
)
"""`acf bench simulators`: one row for each simulated trace."""


def simulator_table(timings: "Sequence[SimulatorTiming]") -> Table:
    """Host time and memory of simulations."""
    return terminal_table(SIMULATOR, timings, "simulator speed, exact schedules", "memory: peak of this process so far")
