"""What a simulation returns: cycles, utilisation, energy and lost MAC slots, per operation and in total."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from acf.errors import ArchitectureError


@dataclass(frozen=True)
class OpResult:
    """The matrix products of one traced operation on one machine.

    ``cycles`` include stalls for memory and the launch of the operation. ``effectual_macs`` have both operands
    non-zero; ``lost_slots`` counts every other MAC slot by reason, so that
    ``effectual_macs + sum(lost_slots.values()) == cycles * macs_per_cycle``. ``energy_j`` is by component.
    ``other_cycles`` come on top of ``cycles``: normalisation, activation, optimizer, topology update; 0 where the
    machine's model has none of them.
    """

    name: str
    phase: str
    cycles: int
    dense_macs: int
    effectual_macs: int
    lost_slots: dict[str, int]
    dram_bytes: int
    energy_j: dict[str, float]
    other_cycles: int = 0


@dataclass(frozen=True)
class Result:
    """A traced training step played on one architecture; totals are sums over ``ops``.

    ``cycles``, and all that derives from them (``seconds``, ``utilization``, ``stalls``, speedups), are of the step's
    matrix products, which every machine models; ``step_cycles`` add what only some machines model besides.
    ``area_mm2`` is the chip's area by component, empty where none is known.
    """

    architecture: str
    workload: str
    clock_hz: float
    technology_nm: int
    macs_per_cycle: int
    ops: tuple[OpResult, ...]
    notes: tuple[str, ...] = ()
    area_mm2: dict[str, float] = field(default_factory=dict)

    @property
    def cycles(self) -> int:
        """Clock cycles of all matrix products of the step, stalls and launches included; operations run in sequence."""
        return sum(op.cycles for op in self.ops)

    @property
    def step_cycles(self) -> int:
        """`cycles`, and those of normalisation, activation, optimizer and topology update where they are modelled."""
        return self.cycles + sum(op.other_cycles for op in self.ops)

    @property
    def seconds(self) -> float:
        """Time of all matrix products of the step: `cycles` at ``clock_hz``."""
        return self.cycles / self.clock_hz

    @property
    def utilization(self) -> float:
        """U = non-zero MACs / MAC slots, counted; 0 for an empty step."""
        slots = self.cycles * self.macs_per_cycle
        return sum(op.effectual_macs for op in self.ops) / slots if slots else 0.0

    @property
    def energy_breakdown_j(self) -> dict[str, float]:
        """Joules by component."""
        total: Counter[str] = Counter()
        for op in self.ops:
            total.update(op.energy_j)
        return dict(total)

    @property
    def energy_j(self) -> float:
        """Joules of all operations, DRAM and leakage included."""
        return sum(self.energy_breakdown_j.values())

    @property
    def dram_bytes(self) -> int:
        """Bytes moved to and from DRAM."""
        return sum(op.dram_bytes for op in self.ops)

    @property
    def stalls(self) -> dict[str, float]:
        """Cycles lost by reason: lost MAC slots over MACs per cycle; with ``utilization * cycles`` they add up."""
        total: Counter[str] = Counter()
        for op in self.ops:
            total.update(op.lost_slots)
        return {reason: slots / self.macs_per_cycle for reason, slots in total.items()}

    def speedup_over(self, baseline: "Result") -> float:
        """How many times faster this is than ``baseline``, in seconds."""
        if self.cycles == 0:
            raise ArchitectureError(
                f"{self.architecture} took 0 cycles on {self.workload!r}, so no speedup exists; "
                "capture a step that computes something"
            )
        return baseline.seconds / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, totals included; `Result.from_dict` reads it back."""
        totals = (
            "cycles",
            "step_cycles",
            "seconds",
            "utilization",
            "energy_j",
            "energy_breakdown_j",
            "dram_bytes",
            "stalls",
        )
        return asdict(self) | {name: getattr(self, name) for name in totals}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Result":
        """The result that `to_dict` wrote; totals are counted again, not believed."""
        try:
            return cls(
                architecture=str(values["architecture"]),
                workload=str(values["workload"]),
                clock_hz=float(values["clock_hz"]),
                technology_nm=int(values["technology_nm"]),
                macs_per_cycle=int(values["macs_per_cycle"]),
                ops=tuple(OpResult(**op) for op in values["ops"]),
                notes=tuple(values.get("notes", ())),
                area_mm2={str(name): float(area) for name, area in values.get("area_mm2", {}).items()},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ArchitectureError(
                f"this is not a saved result ({type(error).__name__}: {error}); "
                "pass a file that `acf simulate --save` wrote"
            ) from error
