"""The timeline of a device of `acf.runtime`: host work, copies over the host link, and products, for Perfetto."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from acf.errors import ReportError
from acf.files import write_whole
from acf.report.timeline.events import Event, EventClock, Track, encoded, process_names, thread_names

if TYPE_CHECKING:
    import acf.runtime

DEVICE = 1
SECONDS = EventClock(1.0)
"""Times of a device are seconds, so that one cycle of this clock is one second."""

HOST = Track(DEVICE, 1)
ENGINE_TRACKS = {
    "h2d": (Track(DEVICE, 2), "copies, host to device"),
    "d2h": (Track(DEVICE, 3), "copies, device to host"),
    "d2d": (Track(DEVICE, 4), "copies on the device"),
    "compute": (Track(DEVICE, 5), "products"),
}
"""Track and name of every engine of `acf.runtime`."""


@dataclass(frozen=True)
class SavedDeviceTimeline:
    """What `save_device_timeline` wrote: ``shown`` of ``operations`` are in the file, the earliest ones."""

    path: Path
    file_bytes: int
    operations: int
    shown: int

    @property
    def sentence(self) -> str:
        """The same in one line."""
        share = "all" if self.shown == self.operations else f"the first {self.shown:,} of"
        return f"{share} {self.operations:,} operations, {self.file_bytes / 1e6:.1f} MB"


def save_device_timeline(
    timeline: "acf.runtime.Timeline", path: str | Path, title: str = "device", limit_bytes: int = 16_000_000
) -> SavedDeviceTimeline:
    """Write what a device did as trace events: every copy, product and stretch of host work, and the link's bandwidth.

    ``timeline`` is ``device.timeline``; ``acf.offload(model, device, keep_timeline=True)`` keeps those of whole steps.
    The file stays below ``limit_bytes``: later operations are left out, and ``otherData`` says how many.
    """
    groups = [(span.start_s, list(_operation(span))) for span in timeline.spans]
    groups += [(start, [_host_work(start, end)]) for start, end in timeline.host_spans]
    if not groups:
        raise ReportError(
            "this timeline holds no operation; run something on the device first, with "
            "acf.offload(model, device, keep_timeline=True) for whole steps"
        )
    names = [encoded(event) for event in _names(title)]
    room = limit_bytes - 4096 - sum(len(event) + 2 for event in names)
    chosen: list[tuple[float, bytes]] = []
    shown = 0
    for _, events in sorted(groups, key=lambda group: group[0]):
        texts = [(float(event["ts"]), encoded(event)) for event in events]
        room -= sum(len(text) + 2 for _, text in texts)
        if room < 0:
            break
        chosen += texts
        shown += 1
    facts = {"device": title, "operations": len(groups), "operations_shown": shown, "limit_bytes": limit_bytes}
    head = encoded({"displayTimeUnit": "ns", "otherData": facts})
    lines = [*names, *(text for _, text in sorted(chosen, key=lambda event: event[0]))]
    content = head[:-1] + b',"traceEvents":[\n' + b",\n".join(lines) + b"\n]}\n"
    write_whole(Path(path), content)
    return SavedDeviceTimeline(Path(path), len(content), len(groups), shown)


def _names(title: str) -> Iterator[Event]:
    yield from process_names(DEVICE, title)
    yield from thread_names(HOST, "host")
    for track, name in ENGINE_TRACKS.values():
        yield from thread_names(track, name)


def _operation(span: "acf.runtime.Span") -> Iterator[Event]:
    """The operation as a slice; for a copy over the host link also the bandwidth while it lasts."""
    track, name = ENGINE_TRACKS[span.engine]
    figures = {
        "stream": span.stream,
        "bytes": span.nbytes,
        "cycles": span.cost.cycles,
        "dram_bytes": span.cost.dram_bytes,
        "effectual_macs": span.cost.effectual_macs,
        "dense_macs": span.cost.dense_macs,
        "energy_j": float(f"{sum(span.cost.energy_j.values()):.4g}"),
    }
    details = {key: value for key, value in figures.items() if value or key == "stream"}
    yield SECONDS.slice(track, span.name or span.engine, span.start_s, span.end_s, **details)
    length = span.end_s - span.start_s
    if span.engine in ("h2d", "d2h") and length > 0:
        curve = f"{name} (GB/s)"
        yield SECONDS.counter(DEVICE, curve, span.start_s, span.nbytes / length / 1e9)
        yield SECONDS.counter(DEVICE, curve, span.end_s, 0.0)


def _host_work(start_s: float, end_s: float) -> Event:
    return SECONDS.slice(HOST, "host work", start_s, end_s)
