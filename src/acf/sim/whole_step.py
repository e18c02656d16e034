"""The whole step while its operations are played: vector work is counted, and everything is placed in the schedule."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import ceil

from acf.sim.accelerator import AcceleratorSpec
from acf.sim.memory import OnChipMemory
from acf.sim.result import OpResult, StepTime, VectorResult
from acf.sim.vector import Job, PassCount, Span, StepSchedule, count_passes
from acf.trace import TracedOp, VectorOp

UPDATE = "update"


@dataclass(frozen=True)
class Part:
    """One product or one pass of vector work: its layer, kind and phase, cycles, and bytes across the DRAM pins."""

    name: str
    kind: str
    phase: str
    cycles: int
    dram_bytes: int


@dataclass(frozen=True)
class Placed:
    """A job in the schedule, in cycles: its span, that of its DRAM traffic, and the work it is made of.

    ``parts`` are the passes that the job fuses; a product is one part.
    """

    is_product: bool
    span: Span
    dram: Span
    parts: tuple[Part, ...]


@dataclass
class WholeStep:
    """Collects products and vector work in program order.

    Passes that follow each other without waiting are one job: they are applied to a value while it is in the vector
    unit. An optimizer update is a job of its own, which only its weight gradient precedes.
    """

    spec: AcceleratorSpec
    memory: OnChipMemory
    results: list[VectorResult] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unit = self.spec.vector_unit
        self.schedule = StepSchedule(self.unit.overlaps)
        self.pending: Job | None = None
        self.pending_parts: tuple[Part, ...] = ()

    def add_product(self, op: TracedOp, result: OpResult) -> None:
        """A product that was played; a weight gradient feeds no other product."""
        self._flush()
        feeds = op.phase != "weight_grad" or not op.weighted
        job = Job(result.cycles, self._dram_cycles(result.dram_bytes), is_product=True, feeds=feeds)
        self._schedule(job, (Part(op.name, "product", op.phase, result.cycles, result.dram_bytes),))

    def add_vector_ops(self, ops: Iterable[VectorOp]) -> None:
        """Vector work after the products so far."""
        for op in ops:
            counts = list(count_passes(op, self.unit, self.memory))
            if op.phase == UPDATE and self.spec.has_update_engine:
                counts = [replace(count, cycles=0) for count in counts]
            for count in counts:
                part = Part(op.name, op.kind, op.phase, count.cycles, count.dram_bytes)
                self._append(count, part, is_update=op.phase == UPDATE)
            self.results.append(self._result(op, counts))

    def time(self, product_cycles: int) -> StepTime | None:
        """The step's time; None where the trace has no vector work. ``product_cycles``: those of all products."""
        if not self.results:
            return None
        self._flush()
        waiting_s = (self.schedule.cycles - product_cycles) / self.spec.clock_hz
        return StepTime(
            cycles=self.schedule.cycles,
            least_cycles=self.schedule.least_cycles,
            most_cycles=self.schedule.most_cycles,
            waiting_j=self.spec.standing_j(waiting_s),
        )

    def _append(self, count: PassCount, part: Part, is_update: bool) -> None:
        job = Job(count.cycles, self._dram_cycles(count.dram_bytes), is_product=False, waits=count.waits)
        if is_update:
            self._flush()
            self._place(replace(job, feeds=False, follows_product=True), (part,))
        elif self.pending is None or count.waits:
            self._flush()
            self.pending, self.pending_parts = job, (part,)
        else:
            self.pending_parts += (part,)
            self.pending = replace(
                self.pending,
                cycles=self.pending.cycles + job.cycles,
                dram_cycles=self.pending.dram_cycles + job.dram_cycles,
            )

    def _flush(self) -> None:
        if self.pending is not None:
            self._place(self.pending, self.pending_parts)
            self.pending = None

    def _place(self, job: Job, parts: tuple[Part, ...]) -> None:
        self._schedule(replace(job, cycles=job.cycles + self.unit.launch_cycles), parts)

    def _schedule(self, job: Job, parts: tuple[Part, ...]) -> None:
        span = self.schedule.add(job)
        dram_end = self.schedule.free["dram"] if job.dram_cycles else 0
        self.placed.append(Placed(job.is_product, span, Span(dram_end - job.dram_cycles, dram_end), parts))

    def _dram_cycles(self, dram_bytes: int) -> int:
        return ceil(dram_bytes / self.spec.dram_sustained_bytes_per_s * self.spec.clock_hz)

    def _result(self, op: VectorOp, counts: list[PassCount]) -> VectorResult:
        dram_bytes = sum(count.dram_bytes for count in counts)
        energy = Counter({"dram": dram_bytes * 8 * self.spec.dram_pj_per_bit * 1e-12})
        for count in counts:
            energy.update(count.energy_j)
        cycles = sum(count.cycles for count in counts)
        return VectorResult(op.name, op.kind, op.phase, cycles, dram_bytes, dict(energy))
