"""Where the time of every training step went: host, copies, products, idle."""

from collections.abc import Sequence
from dataclasses import dataclass

from acf.runtime import Usage
from acf.units import si


@dataclass(frozen=True)
class StepUsage:
    """One optimizer step, in seconds of the device's timeline.

    ``host_s``: the host's own work, measured on this machine. ``copy_s``: the link was busy in either direction.
    ``compute_s``: products. ``idle_s``: neither the link nor the products were busy. Parts overlap, so they may add up
    to more than ``total_s``. ``moved_layers``: layers whose topology had changed since the step before.
    """

    step: int
    total_s: float
    host_s: float
    copy_s: float
    compute_s: float
    idle_s: float
    sent_bytes: int
    received_bytes: int
    moved_layers: int
    energy_j: float

    @classmethod
    def of(cls, step: int, usage: Usage, copied: tuple[int, int], moved_layers: int) -> "StepUsage":
        """The row of an interval of the timeline; ``copied``: bytes to the device and back."""
        return cls(
            step=step,
            total_s=usage.total_s,
            host_s=usage.host_s,
            copy_s=usage.busy_s["h2d"] + usage.busy_s["d2h"],
            compute_s=usage.busy_s["compute"],
            idle_s=usage.idle_s,
            sent_bytes=copied[0],
            received_bytes=copied[1],
            moved_layers=moved_layers,
            energy_j=sum(usage.energy_j.values()),
        )


_HEADINGS = ("step", "total", "host", "copy", "compute", "idle", "sent", "received", "moved", "energy")


def format_table(rows: Sequence[StepUsage]) -> str:
    """The steps as lines of text, one below the other."""
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def _cells(row: StepUsage) -> tuple[str, ...]:
    times = (si(value, "s") for value in (row.total_s, row.host_s, row.copy_s, row.compute_s, row.idle_s))
    traffic = (si(row.sent_bytes, "B"), si(row.received_bytes, "B"))
    return str(row.step), *times, *traffic, str(row.moved_layers), si(row.energy_j, "J")
