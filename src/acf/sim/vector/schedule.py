"""Time of a whole training step: matrix products, vector work and DRAM traffic, overlapped as their data allow.

Three resources work in program order: the compute units, the vector unit and the DRAM channels. Double buffering lets a
job start when its source has delivered the first of `PARTS` parts of a tensor. It ends when it has had the source's
last part, and never before its own DRAM traffic. A job that needs a sum over the whole tensor starts when its source
has ended. A weight gradient and an optimizer update feed nothing in the step, so nothing waits for them.
"""

from dataclasses import dataclass, field
from math import ceil

PARTS = 16
"""Parts in which a tensor passes double buffers: two parts of the largest in ResNet-50 at batch 32 are 6 MB."""


@dataclass(frozen=True)
class Job:
    """``cycles`` of the compute units (``is_product``) or of the vector unit, while DRAM is busy for ``dram_cycles``.

    ``waits``: needs all that its source delivers before it starts. ``feeds``: later jobs take its result.
    ``follows_product``: its source is the product before it, not the job that fed the step last.
    """

    cycles: int
    dram_cycles: int
    is_product: bool
    waits: bool = False
    feeds: bool = True
    follows_product: bool = False

    @property
    def alone_cycles(self) -> int:
        """Cycles of the job if it overlapped with nothing but its own DRAM traffic."""
        return max(self.cycles, self.dram_cycles)


@dataclass(frozen=True)
class Span:
    """When a job ran, in cycles."""

    start: int = 0
    end: int = 0

    @property
    def first_part(self) -> int:
        """The cycle at which the first of `PARTS` parts is there."""
        return self.start + ceil((self.end - self.start) / PARTS)


@dataclass
class StepSchedule:
    """The cycle at which each resource is next free, and the latest product and feeding job.

    ``overlaps`` False: one job at a time, each a kernel.
    """

    overlaps: bool = True
    free: dict[str, int] = field(default_factory=lambda: {"product": 0, "vector": 0, "dram": 0})
    totals: dict[str, int] = field(default_factory=lambda: {"product": 0, "vector": 0, "dram": 0})
    most_cycles: int = 0
    product: Span = field(default_factory=Span)
    fed: Span = field(default_factory=Span)

    def add(self, job: Job) -> Span:
        """Place a job after those before it."""
        unit = "product" if job.is_product else "vector"
        self.totals[unit] += job.cycles
        self.totals["dram"] += job.dram_cycles
        self.most_cycles += job.alone_cycles
        span = self._overlapped(job, unit) if self.overlaps else self._serial(job)
        self.free[unit] = span.end
        if job.is_product:
            self.product = span
        if job.feeds:
            self.fed = span
        return span

    @property
    def cycles(self) -> int:
        """Cycles until everything is done."""
        return max(self.free.values())

    @property
    def least_cycles(self) -> int:
        """Bound from below: the busiest resource, without any dependency."""
        return max(self.totals.values())

    def _serial(self, job: Job) -> Span:
        start = self.cycles
        self.free["dram"] = start + job.dram_cycles
        return Span(start, start + job.alone_cycles)

    def _overlapped(self, job: Job, unit: str) -> Span:
        source = self.product if job.follows_product else self.fed
        start = max(self.free[unit], source.end if job.waits else source.first_part)
        end = max(start + job.cycles, source.end + ceil(job.cycles / PARTS))
        if job.dram_cycles:
            self.free["dram"] = max(self.free["dram"], start) + job.dram_cycles
            end = max(end, self.free["dram"])
        return Span(start, end)
