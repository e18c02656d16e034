"""The tracks of a fabric: sampled SCUs, index-aware memory controllers (IMCs), DIN links and DRAM channels."""

from collections.abc import Iterator

from acf.report.timeline.events import Event, EventClock, Track, process_names, thread_names
from acf.sim.fabric.record_op import RecordedProduct, sampled_scus
from acf.sim.fabric.record_program import Recording
from acf.sim.fabric.spec import AdaptiveFabric
from acf.sim.fabric.timed_memory import timed_dram_spec
from acf.sim.fabric.traffic import FRACTION_BITS, REASONS

SCUS, IMCS, LINKS, CHANNELS = 2, 3, 4, 5

Placement = tuple[int, Event]
"""The cycle at which an event starts, and the event."""


def fabric_names(spec: AdaptiveFabric, scu_tracks: int) -> Iterator[Event]:
    """The names of all tracks of a fabric."""
    scus = sampled_scus(spec, scu_tracks)
    yield from process_names(SCUS, f"SCUs: {scus.size} of {spec.scus}")
    for track, scu in enumerate(scus.tolist()):
        cluster, place = divmod(scu, spec.scus_per_cluster)
        row, column = divmod(cluster, spec.mesh_columns)
        yield from thread_names(Track(SCUS, track), f"row {row}, column {column}, SCU {place}")
    yield from process_names(IMCS, "IMCs: what the next packet waits for")
    yield from process_names(LINKS, "DIN links: packets at the edge of the mesh")
    for line in range(spec.mesh_rows + spec.mesh_columns):
        yield from thread_names(Track(IMCS, line), line_name(spec, line))
        yield from thread_names(Track(LINKS, line), line_name(spec, line))
    yield from process_names(CHANNELS, "DRAM channels: reads")
    for channel, name in enumerate(channel_names(spec)):
        yield from thread_names(Track(CHANNELS, channel), name)


def line_name(spec: AdaptiveFabric, line: int) -> str:
    """A mesh row or column by the number of its line, rows first."""
    return f"row {line}" if line < spec.mesh_rows else f"column {line - spec.mesh_rows}"


def channel_names(spec: AdaptiveFabric) -> list[str]:
    """The channels of DRAM; where it is one rate, each mesh row has its share of it."""
    if spec.memory_model == "rate":
        return [f"share of row {row}" for row in range(spec.mesh_rows)]
    channels = timed_dram_spec(spec.dram_kind, spec.dram_pin_bytes_per_s).channels
    return [f"channel {channel}" for channel in range(channels)]


def product_events(product: RecordedProduct, op_start: int, clock: EventClock) -> Iterator[Placement]:
    """Everything that was recorded of one product of an operation that begins at the cycle ``op_start``."""
    origin = op_start + product.first_cycle
    yield from _scu_states(product.recording, origin, clock)
    yield from _packets(product.recording, origin, clock)
    yield from _transfers(product.recording, origin, clock)


def _scu_states(recording: Recording, origin: int, clock: EventClock) -> Iterator[Placement]:
    for track, reason, start, end, tiles in recording.states.tolist():
        name = REASONS[reason]
        details = {"tiles": tiles} if tiles else {}
        label = name if tiles else f"stall: {name}"
        yield (
            origin + start,
            clock.slice(Track(SCUS, track), label, origin + start, origin + end, reason=name, **details),
        )


def _packets(recording: Recording, origin: int, clock: EventClock) -> Iterator[Placement]:
    for line, packet, free, sent, reason in recording.sends[:, :5].tolist():
        if sent > free:
            name = REASONS[reason]
            waited = clock.slice(Track(IMCS, line), f"wait: {name}", origin + free, origin + sent, reason=name)
            yield origin + free, waited
        flits = int(recording.flits[packet])
        if flits:
            kind = "serial tile" if recording.serial[packet] else "parallel tile"
            details = {"flits": flits, "clusters": int(recording.copies[packet])}
            yield origin + sent, clock.slice(Track(LINKS, line), kind, origin + sent, origin + sent + flits, **details)


def _transfers(recording: Recording, origin: int, clock: EventClock) -> Iterator[Placement]:
    """When each channel is busy with reads; transfers that follow each other or share the channel are one slice."""
    reads = recording.sends[recording.sends[:, 6] > 0][:, [7, 5, 6]]
    busy: tuple[int, int, int, int] | None = None
    for channel, start, end in sorted(map(tuple, reads.tolist())):
        if busy is not None and busy[0] == channel and start <= busy[2]:
            busy = channel, busy[1], max(end, busy[2]), busy[3] + 1
            continue
        if busy is not None:
            yield _transfer(busy, origin, clock)
        busy = channel, start, end, 1
    if busy is not None:
        yield _transfer(busy, origin, clock)


def _transfer(busy: tuple[int, int, int, int], origin: int, clock: EventClock) -> Placement:
    channel, start_ticks, end_ticks, packets = busy
    start, end = (origin + ticks / (1 << FRACTION_BITS) for ticks in (start_ticks, end_ticks))
    return int(start), clock.slice(Track(CHANNELS, channel), "read", start, end, packets=packets)
