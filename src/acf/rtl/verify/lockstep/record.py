"""The record of one run of a program, and where two records first differ."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from acf.lowering import FabricShape
from acf.sim.fabric.traffic import REASONS

Times = list[int]

EVENTS: dict[str, str] = {
    "send": "line",
    "serial_arrival": "cluster",
    "parallel_arrival": "cluster",
    "begin": "SCU",
    "end": "SCU",
    "leave": "cluster",
    "empty": "cluster",
}
"""Events by name, and the kind of place where each happens. Lines are the mesh rows, then the mesh columns."""


def places_of(shape: FabricShape) -> dict[str, int]:
    """How many places of each kind a fabric has."""
    return {"line": shape.mesh_rows + shape.mesh_columns, "cluster": shape.clusters, "SCU": shape.scus}


@dataclass(frozen=True, eq=False)
class Record:
    """Cycles of every event by name and place, SCU cycles by reason ``[SCUs, reasons]``, and the output.

    ``output``: uint32 ``[m, n]``, float32 bits. ``cycles``: of the whole program. A fabric without performance counters
    has no ``scu_cycles``. ``awake_cycles``: in how many cycles of the run each unit was clocked, by kind of place;
    empty where units have no clock gates.
    """

    cycles: int
    events: Mapping[str, list[Times]]
    scu_cycles: NDArray[np.int64] | None
    output: NDArray[np.uint32]
    awake_cycles: Mapping[str, list[int]] = field(default_factory=dict)

    @property
    def cycles_by_reason(self) -> dict[str, int]:
        """Cycles of all SCUs together, by reason; empty without counters."""
        if self.scu_cycles is None:
            return {}
        return dict(zip(REASONS, self.scu_cycles.sum(axis=0).tolist(), strict=True))


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
    """The first difference: the earliest event, else a counter, else a value; None where the records are equal."""
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
    if model.scu_cycles is None or fabric.scu_cycles is None:
        return None
    different = np.argwhere(model.scu_cycles != fabric.scu_cycles)
    if not different.size:
        return None
    scu, reason = (int(index) for index in different[0])
    pair = (str(counters[scu, reason]) for counters in (model.scu_cycles, fabric.scu_cycles))
    return Divergence(f"counter {REASONS[reason]}", f"SCU {scu}", None, *pair)


def _value(model: Record, fabric: Record) -> Divergence | None:
    different = np.argwhere(model.output != fabric.output)
    if not different.size:
        return None
    row, column = (int(index) for index in different[0])
    pair = (f"{record.output[row, column]:#010x}" for record in (model, fabric))
    return Divergence("value", f"output ({row}, {column})", None, *pair)
