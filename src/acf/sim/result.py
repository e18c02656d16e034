"""What a simulation returns: cycles, utilisation, energy and lost MAC slots, per operation and in total."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from acf.errors import ArchitectureError
from acf.schema import read_as
from acf.units import si


@dataclass(frozen=True)
class OpResult:
    """The matrix products of one traced operation on one machine.

    ``cycles`` include stalls for memory and the launch of the operation. ``effectual_macs`` have both operands
    non-zero; ``lost_slots`` counts every other MAC slot by reason, so that
    ``effectual_macs + sum(lost_slots.values()) == cycles * macs_per_cycle``. ``energy_j`` is by component.
    ``other_cycles`` are the step's share of a topology update in the machine's controller, not part of ``cycles``.
    Of ``dram_bytes``, ``left_bytes`` and ``right_bytes`` are reads of the operands and ``written_bytes`` write-backs of
    older tensors; the rest is streamed besides tensors that are kept on chip.
    ``shape`` is what kind of product it is and its size, in words. ``counters``: what control is charged for, by name.
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
    left_bytes: int = 0
    right_bytes: int = 0
    written_bytes: int = 0
    shape: str = ""
    counters: dict[str, float] = field(default_factory=dict)

    @property
    def utilization(self) -> float:
        """U = non-zero MACs / MAC slots, counted; 0 for an operation without cycles."""
        slots = self.effectual_macs + sum(self.lost_slots.values())
        return self.effectual_macs / slots if slots else 0.0


@dataclass(frozen=True)
class VectorResult:
    """Vector work on one machine, all its passes: cycles of the vector unit, DRAM traffic, energy by component."""

    name: str
    kind: str
    phase: str
    cycles: int
    dram_bytes: int
    energy_j: dict[str, float]


@dataclass(frozen=True)
class StepTime:
    """The whole step: products and vector work, overlapped as `acf.sim.vector.schedule` says.

    ``cycles`` lie between ``least_cycles``, those of the busiest resource alone, and ``most_cycles``, everything in
    sequence. ``waiting_j`` is what leaks, or is drawn throughout, while no product runs.
    """

    cycles: int
    least_cycles: int
    most_cycles: int
    waiting_j: dict[str, float]


@dataclass(frozen=True)
class Result:
    """A traced training step played on one architecture.

    ``cycles``, ``seconds``, ``utilization`` and ``stalls`` are of the matrix products. ``step_cycles``,
    ``step_seconds``, ``step_utilization``, ``energy_j``, ``dram_bytes`` and `speedup_over` are of the whole step,
    vector work included; where the trace has none, the products are the whole step. ``area_mm2`` is the chip's area by
    component, empty where none is known; ``dram_bytes_per_s`` is the rate that DRAM sustains, None where unknown.
    """

    architecture: str
    workload: str
    clock_hz: float
    technology_nm: int
    macs_per_cycle: int
    ops: tuple[OpResult, ...]
    notes: tuple[str, ...] = ()
    area_mm2: dict[str, float] = field(default_factory=dict)
    vector_ops: tuple[VectorResult, ...] = ()
    step: StepTime | None = None
    dram_bytes_per_s: float | None = None

    @property
    def cycles(self) -> int:
        """Clock cycles of all matrix products of the step, stalls and launches included; operations run in sequence."""
        return sum(op.cycles for op in self.ops)

    @property
    def step_cycles(self) -> int:
        """Clock cycles of the whole step: products and vector work, overlapped."""
        return self.step.cycles if self.step else self.cycles

    @property
    def vector_cycles(self) -> int:
        """Clock cycles in which the vector unit works."""
        return sum(op.cycles for op in self.vector_ops)

    @property
    def seconds(self) -> float:
        """Time of all matrix products of the step: `cycles` at ``clock_hz``."""
        return self.cycles / self.clock_hz

    @property
    def step_seconds(self) -> float:
        """Time of the whole step: `step_cycles` at ``clock_hz``."""
        return self.step_cycles / self.clock_hz

    @property
    def utilization(self) -> float:
        """U = non-zero MACs / MAC slots of the products, counted; 0 for an empty step."""
        return self._utilization(self.cycles)

    @property
    def step_utilization(self) -> float:
        """U of the whole step: non-zero MACs / MAC slots of all its cycles, those without a product included."""
        return self._utilization(self.step_cycles)

    def _utilization(self, cycles: int) -> float:
        slots = cycles * self.macs_per_cycle
        return sum(op.effectual_macs for op in self.ops) / slots if slots else 0.0

    @property
    def peak_macs_per_s(self) -> float:
        """MAC slots per second."""
        return self.macs_per_cycle * self.clock_hz

    @property
    def total_area_mm2(self) -> float | None:
        """The chip's area; None where none is known."""
        return sum(self.area_mm2.values()) or None

    @property
    def energy_delay_js(self) -> float:
        """Energy-delay product of the whole step, in joule seconds."""
        return self.energy_j * self.step_seconds

    @property
    def energy_breakdown_j(self) -> dict[str, float]:
        """Joules of the whole step by component."""
        waiting = self.step.waiting_j if self.step else {}
        return _total([*(op.energy_j for op in self.ops), *(op.energy_j for op in self.vector_ops), waiting])

    @property
    def counters(self) -> dict[str, float]:
        """What control is charged for, by name, over all products; empty where a machine does not count it."""
        return _total([op.counters for op in self.ops])

    @property
    def energy_j(self) -> float:
        """Joules of the whole step, DRAM and leakage included."""
        return sum(self.energy_breakdown_j.values())

    @property
    def products_energy_j(self) -> float:
        """Joules of the matrix products alone."""
        return sum(_total([op.energy_j for op in self.ops]).values())

    @property
    def dram_bytes(self) -> int:
        """Bytes moved to and from DRAM in the whole step."""
        return sum(op.dram_bytes for op in self.ops) + sum(op.dram_bytes for op in self.vector_ops)

    @property
    def stalls(self) -> dict[str, float]:
        """Cycles of products lost by reason: lost MAC slots over MACs per cycle.

        With ``utilization * cycles`` they add up to ``cycles``.
        """
        total = Counter[str]()
        for op in self.ops:
            total.update(op.lost_slots)
        return {reason: slots / self.macs_per_cycle for reason, slots in total.items()}

    def speedup_over(self, baseline: "Result") -> float:
        """How many times faster this whole step is than ``baseline``'s, in seconds."""
        self._refuse_empty_step()
        return baseline.step_seconds / self.step_seconds

    def products_speedup_over(self, baseline: "Result") -> float:
        """How many times faster the matrix products are than ``baseline``'s, as papers compare them."""
        self._refuse_empty_step()
        return baseline.seconds / self.seconds

    def _refuse_empty_step(self) -> None:
        if self.cycles == 0:
            raise ArchitectureError(
                f"{self.architecture} took 0 cycles on {self.workload!r}, so no speedup exists; "
                "capture a step that computes something"
            )

    def __repr__(self) -> str:
        """One line: the machine, the workload and the figures of the whole step."""
        figures = f"{si(self.step_seconds, 's')}, U {self.step_utilization:.1%}, {si(self.energy_j, 'J')}"
        return f"Result({self.architecture!r}, {self.workload!r}, {len(self.ops)} operations, {figures})"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, totals included; `Result.from_dict` reads it back."""
        return asdict(self) | {name: getattr(self, name) for name in TOTALS}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Result":
        """The result that `to_dict` wrote; totals are counted again, not believed."""
        try:
            own = {each.name: values[each.name] for each in fields(cls) if each.name in values}
            result = read_as(cls, own | {"step": own.get("step") or None})
            _check_counts(asdict(result), "result")
        except (TypeError, ValueError) as error:
            raise ArchitectureError(
                f"this is not a saved result ({error}); pass a file that `acf simulate --out` wrote"
            ) from error
        return result


def _check_counts(value: Any, where: str) -> None:
    """Refuse a figure below 0, and a machine without a clock or MACs: no simulation counts such."""
    if isinstance(value, dict):
        for name, each in value.items():
            _check_counts(each, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            _check_counts(each, f"{where}.{place}")
    elif isinstance(value, int | float) and (value < 0 or (value == 0 and where in POSITIVE)):
        raise ValueError(f"{where} is {value}, and no machine counts that")


POSITIVE = ("result.clock_hz", "result.macs_per_cycle", "result.technology_nm")
"""Figures that every machine has."""

TOTALS = (
    "cycles",
    "step_cycles",
    "vector_cycles",
    "seconds",
    "step_seconds",
    "utilization",
    "step_utilization",
    "energy_j",
    "products_energy_j",
    "energy_delay_js",
    "energy_breakdown_j",
    "dram_bytes",
    "stalls",
)
"""Properties that `Result.to_dict` adds to the fields."""


def _total(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    total = Counter[str]()
    for part in parts:
        total.update(part)
    return dict(total)
