"""`acf.Timeline`: a simulated step for Perfetto and chrome://tracing, and as a heat map of occupancy over time."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acf.errors import ReportError
from acf.files import write_whole
from acf.report.timeline.device_tracks import SavedDeviceTimeline, save_device_timeline
from acf.report.timeline.events import Event, EventClock, encoded
from acf.report.timeline.fabric_tracks import Placement, fabric_names, product_events
from acf.report.timeline.occupancy import curve_events, occupancy_of, occupancy_svg
from acf.report.timeline.step_tracks import step_events
from acf.sim.recording import StepRecording

__all__ = ["SavedDeviceTimeline", "SavedTimeline", "Timeline", "save_device_timeline"]

EVENT_BYTES = 140
"""What an event takes in the file, about."""

NOT_MODELLED = (
    "host copies: a simulated step begins with its operands in DRAM; "
    "acf.report.timeline.save_device_timeline shows the copies of a run on a device"
)


@dataclass(frozen=True)
class SavedTimeline:
    """What `Timeline.save` wrote.

    ``shown_share`` is the share of the products' cycles whose events are in the file; ``complete_products`` of
    ``products`` are shown whole. Machines that are not simulated by events have no events but the step's own.
    """

    path: Path
    file_bytes: int
    events: int
    products: int
    complete_products: int
    shown_share: float
    by_events: bool

    @property
    def sentence(self) -> str:
        """The same in one line."""
        size = f"{self.events:,} events, {self.file_bytes / 1e6:.1f} MB"
        if not self.by_events:
            return f"{size}; one slice per operation: this machine is not simulated by events"
        if self.complete_products == self.products:
            return f"{size}; all {self.products} products event by event"
        whole = f"{self.complete_products} of {self.products} products event by event to their end"
        return f"{size}; {whole}, the others at their beginning; {self.shown_share:.1%} of the cycles in all"


class Timeline(StepRecording):
    """Records a step that `acf.simulate` plays with ``timeline=``; `save` writes trace-event JSON.

    Every product and vector operation is a slice. On a fabric, ``scu_tracks`` SCUs at equal distances, all memory
    controllers, links and DRAM channels follow event by event. The file stays below ``limit_bytes``: each product
    gets the same share of it, and shows its first cycles where that is not enough; the file's ``otherData`` says so.

    >>> import acf
    >>> timeline = acf.Timeline()
    >>> timeline.save("step.json")
    Traceback (most recent call last):
        ...
    acf.errors.ArchitectureError: this timeline holds no step; pass it to acf.simulate(..., timeline=...) first
    """

    def __init__(self, limit_bytes: int = 16_000_000, scu_tracks: int = 64) -> None:
        if limit_bytes < 100_000:
            raise ReportError(f"limit_bytes {limit_bytes} is below 100000, which no timeline fits in; give more")
        super().__init__(limit_bytes // EVENT_BYTES, scu_tracks)
        self.limit_bytes = limit_bytes

    def save(self, path: str | Path) -> SavedTimeline:
        """Write the file, which Perfetto (ui.perfetto.dev) and chrome://tracing open; says what is in it."""
        clock = EventClock(self.result.clock_hz)
        named = list(self._names(clock))
        details = _Details(self, clock, self.limit_bytes - sum(len(event) + 2 for _, event in named) - 4096)
        chosen = sorted([*named, *details.chosen], key=lambda event: event[0])
        written = SavedTimeline(
            path=Path(path),
            file_bytes=0,
            events=len(chosen),
            products=len(details.shown),
            complete_products=sum(shown >= 1.0 for shown in details.shown),
            shown_share=details.shown_share,
            by_events=self.fabric is not None,
        )
        head = encoded({"displayTimeUnit": "ns", "otherData": self._facts(written)})
        content = head[:-1] + b',"traceEvents":[\n' + b",\n".join(event for _, event in chosen) + b"\n]}\n"
        write_whole(Path(path), content)
        return SavedTimeline(**{**asdict(written), "file_bytes": len(content)})

    def save_heat_map(self, path: str | Path) -> Path:
        """Write an SVG: how busy every cluster and every link was over time. Fabrics only."""
        architecture = self.result.architecture
        if self.fabric is None:
            raise ReportError(
                f"{architecture} is not simulated by events, so the occupancy of its parts is not known; "
                "use a fabric such as acf-512"
            )
        write_whole(Path(path), occupancy_svg(self, self.fabric).encode())
        return Path(path)

    def _names(self, clock: EventClock) -> Iterator[tuple[float, bytes]]:
        """Events that are always there: the step's own, the names of tracks, and curves of a fabric."""
        events: list[Event] = list(step_events(self, clock))
        if self.fabric is not None:
            events += fabric_names(self.fabric, self.scu_tracks)
            events += curve_events(occupancy_of(self, self.fabric), clock)
        return ((-1.0 if event["ph"] == "M" else event["ts"], encoded(event)) for event in events)

    def _facts(self, written: SavedTimeline) -> dict[str, Any]:
        result = self.result
        facts: dict[str, Any] = {
            "architecture": result.architecture,
            "workload": result.workload,
            "clock_hz": result.clock_hz,
            "technology_nm": result.technology_nm,
            "step_cycles": result.step_cycles,
            "products": written.products,
            "products_shown_to_their_end": written.complete_products,
            "share_of_cycles_shown_by_events": round(written.shown_share, 4),
            "limit_bytes": self.limit_bytes,
            "not_modelled": NOT_MODELLED,
        }
        if self.fabric is not None:
            facts["scus_shown"] = f"{min(self.scu_tracks, self.fabric.scus)} of {self.fabric.scus}, at equal distances"
        return facts


class _Details:
    """The events of a fabric that fit into ``room_bytes``, every operation's first ones; ``shown`` by operation."""

    def __init__(self, recording: StepRecording, clock: EventClock, room_bytes: int) -> None:
        self.chosen: list[tuple[float, bytes]] = []
        self.shown: list[float] = []
        by_op = [_encoded_op(recording, place, clock) for place in range(len(recording.ops))]
        cycles = [op.result.cycles for op in recording.ops]
        shares = fair_shares([sum(len(event) + 2 for _, event in events) for events, _ in by_op], room_bytes)
        for place, ((events, known), share) in enumerate(zip(by_op, shares, strict=True)):
            kept, until = _fitting(events, share)
            self.chosen += kept
            start, op = recording.op_starts[place], recording.ops[place]
            end = min(known, 1e-6 * until * clock.clock_hz - start)
            self.shown.append(min(1.0, end / op.result.cycles) if op.products and op.result.cycles else 0.0)
        total = sum(cycles)
        weighted = sum(share * length for share, length in zip(self.shown, cycles, strict=True))
        self.shown_share = weighted / total if total else 0.0


def _encoded_op(recording: StepRecording, place: int, clock: EventClock) -> tuple[list[tuple[float, bytes]], float]:
    """Events of an operation by time stamp, and its cycle up to which all of them were recorded."""
    op, start = recording.ops[place], recording.op_starts[place]
    events: list[Placement] = [each for product in op.products for each in product_events(product, start, clock)]
    cut = [product.first_cycle + product.recording.until for product in op.products if not product.is_whole]
    known = float(min(cut, default=op.result.cycles))
    kept = sorted((event["ts"], encoded(event)) for cycle, event in events if cycle - start < known)
    return kept, known


def _fitting(events: Sequence[tuple[float, bytes]], room_bytes: float) -> tuple[list[tuple[float, bytes]], float]:
    """The first events that fit, and the time stamp of the first that does not."""
    used = 0
    for place, (stamp, event) in enumerate(events):
        used += len(event) + 2
        if used > room_bytes:
            return list(events[:place]), stamp
    return list(events), float("inf")


def fair_shares(wanted: Sequence[int], room: int) -> list[float]:
    """Divide ``room``: everyone gets what he wants or the same share; what is not wanted goes to the others.

    >>> fair_shares([10, 100, 100], 90)
    [10.0, 40.0, 40.0]
    """
    shares = [0.0] * len(wanted)
    left, remaining = float(max(0, room)), len(wanted)
    for place in sorted(range(len(wanted)), key=lambda index: wanted[index]):
        shares[place] = min(float(wanted[place]), left / remaining)
        left -= shares[place]
        remaining -= 1
    return shares
