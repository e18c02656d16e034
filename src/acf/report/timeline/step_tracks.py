"""The tracks of a whole step on any machine: products, vector unit, DRAM, where cycles go, and two counters."""

from collections.abc import Iterator

from acf.report.timeline.events import Event, EventClock, Track, process_names, thread_names
from acf.sim.recording import RecordedOp, StepRecording
from acf.sim.result import OpResult
from acf.sim.whole_step import Part, Placed

STEP = 1
PRODUCTS, BREAKDOWN, VECTOR, DRAM = (Track(STEP, thread) for thread in range(1, 5))

TRACK_NAMES = {
    PRODUCTS: "matrix products",
    BREAKDOWN: "product cycles by reason (in proportion, not in order)",
    VECTOR: "vector unit",
    DRAM: "DRAM traffic",
}


def step_events(recording: StepRecording, clock: EventClock) -> Iterator[Event]:
    """Every product and every vector operation of the step as a slice with its figures; U and bandwidth as curves."""
    result = recording.result
    yield from process_names(STEP, f"{result.workload or 'step'} on {result.architecture}")
    for track, name in TRACK_NAMES.items():
        yield from thread_names(track, name)
    products = iter(recording.ops)
    for job in recording.placed:
        if job.is_product:
            yield from _product(job, next(products), result.macs_per_cycle, clock)
        else:
            yield from _vector_job(job, clock)
        if job.dram.end > job.dram.start:
            moved = sum(part.dram_bytes for part in job.parts)
            yield clock.slice(DRAM, _label(job), job.dram.start, job.dram.end, bytes=moved)
    yield from _utilization(recording, clock)
    yield from _bandwidth(recording, clock)


def _product(job: Placed, op: RecordedOp, macs_per_cycle: int, clock: EventClock) -> Iterator[Event]:
    result, start = op.result, job.span.start
    figures = {
        "cycles": result.cycles,
        "U_percent": round(100 * result.utilization, 2),
        "effectual_macs": result.effectual_macs,
        "dense_macs": result.dense_macs,
        "dram_bytes": result.dram_bytes,
        "energy_j": float(f"{sum(result.energy_j.values()):.4g}"),
    }
    yield clock.slice(PRODUCTS, _label(job), start, job.span.end, **figures)
    shares = {"effectual": result.effectual_macs} | result.lost_slots
    at = float(start)
    for reason, slots in shares.items():
        cycles = slots / macs_per_cycle
        if cycles:
            percent = round(100 * cycles / result.cycles, 2)
            yield clock.slice(BREAKDOWN, reason, at, at + cycles, reason=reason, percent=percent)
        at += cycles


def _vector_job(job: Placed, clock: EventClock) -> Iterator[Event]:
    """A job that fuses several passes has one slice for each inside, in proportion to their cycles."""
    moved = sum(part.dram_bytes for part in job.parts)
    cycles = sum(part.cycles for part in job.parts)
    yield clock.slice(VECTOR, _label(job), job.span.start, job.span.end, cycles=cycles, dram_bytes=moved)
    if len(job.parts) == 1:
        return
    at, length = float(job.span.start), job.span.end - job.span.start
    for part in job.parts:
        end = at + length * part.cycles / max(1, cycles)
        yield clock.slice(VECTOR, _part_label(part), at, end, cycles=part.cycles, dram_bytes=part.dram_bytes)
        at = end


def _label(job: Placed) -> str:
    first = _part_label(job.parts[0])
    return first if len(job.parts) == 1 else f"{first} and {len(job.parts) - 1} more"


def _part_label(part: Part) -> str:
    kind = "" if part.kind == "product" else f"{part.kind} "
    return f"{part.name} {kind}{part.phase}"


def _utilization(recording: StepRecording, clock: EventClock) -> Iterator[Event]:
    """U of the product that runs; 0 while none does."""
    idle_from = 0
    for job, op in zip((job for job in recording.placed if job.is_product), recording.ops, strict=True):
        if job.span.start > idle_from:
            yield clock.counter(STEP, "U (%)", idle_from, 0.0)
        yield clock.counter(STEP, "U (%)", job.span.start, 100 * _utilization_of(op.result, job))
        idle_from = job.span.end
    yield clock.counter(STEP, "U (%)", idle_from, 0.0)


def _utilization_of(result: OpResult, job: Placed) -> float:
    """U over the span of the product, which may be longer than its cycles where it waits for data."""
    length = job.span.end - job.span.start
    return result.utilization * result.cycles / length if length else 0.0


def _bandwidth(recording: StepRecording, clock: EventClock) -> Iterator[Event]:
    """Bytes per second across the DRAM pins, averaged over each transfer."""
    name, idle_from = "DRAM (GB/s)", 0
    for job in recording.placed:
        start, end = job.dram.start, job.dram.end
        if end <= start:
            continue
        if start > idle_from:
            yield clock.counter(STEP, name, idle_from, 0.0)
        moved = sum(part.dram_bytes for part in job.parts)
        yield clock.counter(STEP, name, start, moved / (end - start) * clock.clock_hz / 1e9)
        idle_from = end
    yield clock.counter(STEP, name, idle_from, 0.0)
