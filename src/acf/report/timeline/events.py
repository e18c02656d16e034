"""Trace events, the JSON that Perfetto and chrome://tracing open: slices, counters and the names of tracks."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from acf.report.timeline.colours import TRACE_COLOURS

Event = dict[str, Any]
"""One trace event: ``ph`` is "X" (a slice), "C" (a counter) or "M" (a name); ``ts`` and ``dur`` are microseconds."""


@dataclass(frozen=True)
class Track:
    """A row of the viewer: thread ``thread`` of process ``process``."""

    process: int
    thread: int


@dataclass(frozen=True)
class EventClock:
    """Cycles as time stamps. Stamps are whole nanoseconds, as viewers keep them, so that neighbours never overlap."""

    clock_hz: float

    def ns(self, cycle: float) -> int:
        """The nanosecond at which ``cycle`` begins."""
        return round(cycle * 1e9 / self.clock_hz)

    def slice(self, track: Track, name: str, start: float, end: float, **details: Any) -> Event:
        """What happened on ``track`` from cycle ``start`` to ``end``; ``details`` are shown beside it.

        A reason of `TRACE_COLOURS` as ``reason`` gives the colour.
        """
        begin = self.ns(start)
        event: Event = {
            "name": name,
            "ph": "X",
            "ts": begin / 1e3,
            "dur": (self.ns(end) - begin) / 1e3,
            "pid": track.process,
            "tid": track.thread,
        }
        colour = TRACE_COLOURS.get(details.pop("reason", ""))
        if colour:
            event["cname"] = colour
        if details:
            event["args"] = details
        return event

    def counter(self, process: int, name: str, cycle: float, value: float) -> Event:
        """The value of a curve from ``cycle`` on."""
        stamp = self.ns(cycle) / 1e3
        return {"name": name, "ph": "C", "ts": stamp, "pid": process, "args": {"value": round(value, 3)}}


def process_names(process: int, name: str) -> Iterator[Event]:
    """The heading of a group of tracks; groups stand in the order of their numbers."""
    for kind, value in (("process_name", {"name": name}), ("process_sort_index", {"sort_index": process})):
        yield {"name": kind, "ph": "M", "ts": 0, "pid": process, "tid": 0, "args": value}


def thread_names(track: Track, name: str) -> Iterator[Event]:
    """The name of one track; tracks stand in the order of their numbers."""
    for kind, value in (("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": track.thread})):
        yield {"name": kind, "ph": "M", "ts": 0, "pid": track.process, "tid": track.thread, "args": value}


def encoded(event: Event) -> bytes:
    """One event as compact JSON."""
    return json.dumps(event, separators=(",", ":"), allow_nan=False).encode()
