"""The record of a simulated step: when every product, vector pass and, on a fabric, every sampled event took place."""

from collections.abc import Sequence
from dataclasses import dataclass

from acf.errors import ArchitectureError
from acf.sim.accelerator import AcceleratorSpec
from acf.sim.fabric.record_op import RecordedProduct, has_events, record_op, sampled_scus
from acf.sim.fabric.record_program import Sampling
from acf.sim.fabric.spec import AdaptiveFabric
from acf.sim.observer import PlayedOp
from acf.sim.result import OpResult, Result
from acf.sim.vector import Span
from acf.sim.whole_step import Placed


@dataclass(frozen=True)
class RecordedOp:
    """An operation's figures, and its products event by event; none on machines that are not simulated by events."""

    result: OpResult
    products: tuple[RecordedProduct, ...] = ()


class StepRecording:
    """A `acf.sim.observer.StepObserver` that keeps what it hears.

    ``event_limit`` bounds the events of one trace that are kept in memory, ``scu_tracks`` the SCUs that are sampled.
    """

    def __init__(self, event_limit: int = 100_000, scu_tracks: int = 64) -> None:
        for name, value in (("event_limit", event_limit), ("scu_tracks", scu_tracks)):
            if value < 1:
                raise ArchitectureError(f"{name} {value} is below 1; give at least 1")
        self.event_limit, self.scu_tracks = event_limit, scu_tracks
        self.ops: list[RecordedOp] = []
        self._placed: tuple[Placed, ...] = ()
        self._spec: AcceleratorSpec | None = None
        self._result: Result | None = None
        self._limit_per_op = event_limit

    def begin(self, spec: AcceleratorSpec, operations: int) -> None:
        """Expect so many operations; a second step is refused."""
        if self._result is not None:
            raise ArchitectureError("this timeline holds a step already; make a new one for every simulation")
        self._spec = spec
        self._limit_per_op = max(1000, 2 * self.event_limit // max(1, operations))

    def add_product(self, played: PlayedOp) -> None:
        """Keep an operation; on a fabric its products are played again and recorded."""
        products: list[RecordedProduct] = []
        if self.fabric is not None:
            sampling = Sampling(sampled_scus(self.fabric, self.scu_tracks), self._limit_per_op)
            products = record_op(self.fabric, played, sampling)
        self.ops.append(RecordedOp(played.result, tuple(products)))

    def end(self, result: Result, placed: Sequence[Placed]) -> None:
        """Keep the result and the schedule."""
        self._result = result
        self._placed = tuple(placed) if result.step else tuple(_in_sequence(placed))

    @property
    def result(self) -> Result:
        """The step's result."""
        if self._result is None:
            raise ArchitectureError("this timeline holds no step; pass it to acf.simulate(..., timeline=...) first")
        return self._result

    @property
    def fabric(self) -> AdaptiveFabric | None:
        """The machine if it is a fabric that the event engine simulates; None for all others."""
        spec = self._spec
        return spec if isinstance(spec, AdaptiveFabric) and has_events(spec) else None

    @property
    def placed(self) -> tuple[Placed, ...]:
        """Products and vector work in program order, with their spans in cycles."""
        _ = self.result
        return self._placed

    @property
    def op_starts(self) -> list[int]:
        """The cycle at which each operation of `ops` begins."""
        return [job.span.start for job in self.placed if job.is_product]


def _in_sequence(placed: Sequence[Placed]) -> list[Placed]:
    """Products alone, one after another: a trace without vector work is not scheduled as a whole step."""
    jobs, start = [], 0
    for job in placed:
        end = start + sum(part.cycles for part in job.parts)
        length = min(job.dram.end - job.dram.start, end - start)
        jobs.append(Placed(True, Span(start, end), Span(start, start + length), job.parts))
        start = end
    return jobs
