"""Device time: when every operation began and ended on the device's engines, and what it took."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from acf.runtime.errors import InvalidValueError

ENGINES = ("h2d", "d2h", "d2d", "compute")
"""Parts of a device that work at the same time: copies to and from the host, copies on the device, products."""


MOST_SPANS = 100_000
"""Operations that a timeline remembers at least; of twice as many, the older half is forgotten."""


@dataclass(frozen=True)
class Cost:
    """What an operation took: ``seconds`` of its engine, and what a modelled device counts.

    ``energy_j`` by component; ``cycles`` of its clock; ``dram_bytes`` across the pins; multiply-accumulates if nothing
    were skipped, and those whose operands are both non-zero.
    """

    seconds: float = 0.0
    energy_j: Mapping[str, float] = field(default_factory=dict)
    cycles: int = 0
    dram_bytes: int = 0
    dense_macs: int = 0
    effectual_macs: int = 0


@dataclass(frozen=True)
class Span:
    """One operation on the timeline: what ran on which engine and stream, from ``start_s`` to ``end_s``."""

    name: str
    engine: str
    stream: int
    start_s: float
    end_s: float
    nbytes: int
    cost: Cost


@dataclass(frozen=True)
class Usage:
    """Seconds of an interval: ``total_s``, ``host_s`` of host work, ``busy_s`` by engine, and ``idle_s``.

    ``idle_s``: no engine was busy. Engines overlap, so the parts may add up to more than the total.
    """

    total_s: float
    host_s: float
    busy_s: Mapping[str, float]
    idle_s: float
    energy_j: Mapping[str, float]


class Timeline:
    """The clocks of one device, in seconds from its creation.

    An operation starts when the host has submitted it, the operation before it in its stream has ended, and its engine
    is free; an engine takes operations in the order of submission. The host's clock moves with `host_work`, with every
    submission, and to the end of what the host waits for.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.host_s = 0.0
        self._free_s = dict.fromkeys(ENGINES, 0.0)
        self._worked: list[tuple[float, float]] = []
        self._forgotten_s = 0.0
        self._lock = Lock()

    @property
    def host_spans(self) -> list[tuple[float, float]]:
        """Start and end, in seconds, of every stretch of work that the host did itself."""
        with self._lock:
            return list(self._worked)

    def host_work(self, seconds: float) -> None:
        """Advance the host's clock by work that the host did itself."""
        with self._lock:
            self._worked.append((self.host_s, self.host_s + seconds))
            self.host_s += seconds
            if len(self._worked) > 2 * MOST_SPANS:
                self._forgotten_s = max(self._forgotten_s, self._worked[MOST_SPANS - 1][1])
                del self._worked[:MOST_SPANS]

    def add(self, span: Span) -> None:
        """Remember an operation; of very many, the latest are."""
        with self._lock:
            self.spans.append(span)
            if len(self.spans) > 2 * MOST_SPANS:
                self._forgotten_s = max(self._forgotten_s, *(old.end_s for old in self.spans[:MOST_SPANS]))
                del self.spans[:MOST_SPANS]

    def submit(self, seconds: float) -> float:
        """Advance the host's clock by a submission; the time at which the operation has reached the device."""
        with self._lock:
            self.host_s += seconds
            return self.host_s

    def wait_until(self, seconds: float) -> None:
        """The host has waited for something that ended at ``seconds``."""
        with self._lock:
            self.host_s = max(self.host_s, seconds)

    def place(self, engine: str, earliest_s: float, cost: Cost) -> tuple[float, float]:
        """Occupy an engine for an operation that may start at ``earliest_s``; its start and end."""
        with self._lock:
            start = max(earliest_s, self._free_s[engine])
            self._free_s[engine] = start + cost.seconds
            return start, start + cost.seconds

    def forget(self) -> None:
        """Drop what is recorded so far, for long runs; the clocks go on."""
        with self._lock:
            self.spans.clear()
            self._worked.clear()

    def usage(self, since_s: float = 0.0) -> Usage:
        """Where the time from ``since_s`` to the latest clock went."""
        with self._lock:
            if since_s < self._forgotten_s:
                raise InvalidValueError(
                    f"operations before {self._forgotten_s:g} s are forgotten, since a timeline keeps the latest "
                    f"{MOST_SPANS}; ask since_s={self._forgotten_s:g} or later, or ask more often"
                )
            spans = [span for span in self.spans if span.end_s > since_s]
            worked = [span for span in self._worked if span[1] > since_s]
            end = max([self.host_s, since_s, *(span.end_s for span in spans)])
        energy: dict[str, float] = {}
        for span in spans:
            for part, joules in span.cost.energy_j.items():
                energy[part] = energy.get(part, 0.0) + joules
        busy = {
            engine: _covered(since_s, ((span.start_s, span.end_s) for span in spans if span.engine == engine))
            for engine in ENGINES
        }
        covered = _covered(since_s, ((span.start_s, span.end_s) for span in spans))
        total = end - since_s
        return Usage(total, _covered(since_s, worked), busy, total - covered, energy)


def _covered(since_s: float, intervals: Iterable[tuple[float, float]]) -> float:
    """Seconds after ``since_s`` that at least one interval covers."""
    covered, reached = 0.0, since_s
    for start, end in sorted(intervals):
        if end > reached:
            covered += end - max(start, reached)
            reached = end
    return covered
