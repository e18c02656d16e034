"""What happened in one run of a program, and where two runs first differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from acf.sim.fabric.traffic import REASONS

Times = list[int]

EVENTS: dict[str, str] = {
    "send": "line",
    "serial_arrival": "cluster",
    "parallel_arrival": "cluster",
    "begin": "unit",
    "end": "unit",
    "leave": "cluster",
    "empty": "cluster",
}
"""Events by name, and what they are counted by. Lines are the mesh rows, then the mesh columns."""


@dataclass(frozen=True, eq=False)
class Record:
    """Cycles of every event by name and place, unit cycles by reason ``[units, reasons]``, and the output.

    ``output``: uint32 ``[m, n]``, float32 bits. ``cycles``: of the whole program.
    """

    cycles: int
    events: Mapping[str, list[Times]]
    unit_cycles: NDArray[np.int64]
    output: NDArray[np.uint32]


@dataclass(frozen=True)
class Divergence:
    """The first cycle in which two runs differ, or what differs without one."""

    port: str
    place: str
    cycle: int | None
    expected: str
    found: str

    def __str__(self) -> str:
        when = "" if self.cycle is None else f" in cycle {self.cycle}"
        return f"{self.port} of {self.place} differs{when}: the model has {self.expected}, the fabric {self.found}"


def first_divergence(model: Record, fabric: Record) -> Divergence | None:
    """Where the runs part: the earliest event, else a counter, else a value; None where they are the same."""
    return _event(model, fabric) or _counter(model, fabric) or _value(model, fabric)


def _event(model: Record, fabric: Record) -> Divergence | None:
    found: list[tuple[int, Divergence]] = []
    for name, kind in EVENTS.items():
        for place, (expected, seen) in enumerate(zip(model.events[name], fabric.events[name], strict=True)):
            for index, (one, other) in enumerate(zip_longest(expected, seen)):
                if one == other:
                    continue
                cycle = min(time for time in (one, other) if time is not None)
                texts = [f"number {index} in cycle {time}" if time is not None else "none" for time in (one, other)]
                found.append((cycle, Divergence(name, f"{kind} {place}", cycle, *texts)))
                break
    return min(found, key=lambda each: each[0])[1] if found else None


def _counter(model: Record, fabric: Record) -> Divergence | None:
    if model.cycles != fabric.cycles:
        return Divergence("cycles", "the program", None, str(model.cycles), str(fabric.cycles))
    different = np.argwhere(model.unit_cycles != fabric.unit_cycles)
    if not different.size:
        return None
    unit, reason = (int(index) for index in different[0])
    pair = (str(record.unit_cycles[unit, reason]) for record in (model, fabric))
    return Divergence(f"counter {REASONS[reason]}", f"unit {unit}", None, *pair)


def _value(model: Record, fabric: Record) -> Divergence | None:
    different = np.argwhere(model.output != fabric.output)
    if not different.size:
        return None
    row, column = (int(index) for index in different[0])
    pair = (f"{record.output[row, column]:#010x}" for record in (model, fabric))
    return Divergence("value", f"output ({row}, {column})", None, *pair)
