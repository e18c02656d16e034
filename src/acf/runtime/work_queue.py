"""The queue of one device: operations wait in the order of submission and run when a host thread needs their result.

No thread belongs to the device. `WorkQueue.drain` runs in whichever thread synchronises, under one lock. An operation
depends only on operations that were submitted before it (those of its stream, and those before the record of an event
that it waits for), so running in the order of submission satisfies every dependency, and nothing can deadlock.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock, get_ident
from typing import Protocol

from acf.runtime.errors import DeviceError, InvalidValueError, LaunchFailureError
from acf.runtime.memory import Region
from acf.runtime.program import Program
from acf.runtime.timeline import ENGINES, Cost, Span, Timeline

MOST_PENDING = 4096
"""Operations that wait at most; a submission beyond runs the oldest, as a full command queue blocks its host."""


@dataclass(eq=False)
class StreamState:
    """Where a stream stands: when its last operation ended, and the error that a synchronisation has yet to raise."""

    number: int
    ready_s: float = 0.0
    last: int = 0
    error: DeviceError | None = None


@dataclass(eq=False)
class Recorded:
    """One record of an event: its place in the queue, and once it is reached, its time and its stream's error."""

    sequence: int = 0
    time_s: float | None = None
    error: DeviceError | None = None


@dataclass(eq=False)
class Operation:
    """One entry of the queue. ``engine`` None: a marker of an event, which takes no time.

    A launch has its ``program`` and the ``regions`` of its arguments.
    """

    name: str
    stream: StreamState
    run: Callable[[], Cost]
    engine: str | None = None
    nbytes: int = 0
    issued_s: float = 0.0
    marker: Recorded | None = None
    program: Program | None = None
    regions: Sequence[Region] = ()
    sequence: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.engine is not None and self.engine not in ENGINES:
            raise InvalidValueError(f"engine {self.engine!r} is not one of {', '.join(ENGINES)}; use one of these")


@dataclass(frozen=True)
class HostStep:
    """What the host did: "synchronize" with ``stream`` (-1: the device), or "work" of ``seconds``."""

    kind: str
    stream: int = -1
    seconds: float = 0.0


class Observer(Protocol):
    """Hears of everything that a device completes, in order."""

    def completed(self, operation: Operation, cost: Cost) -> None:
        """An operation has run, and what it took."""

    def host(self, step: HostStep) -> None:
        """The host has synchronised or worked."""


class WorkQueue:
    """Pending operations of all streams of a device."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.observers: list[Observer] = []
        self._pending: deque[Operation] = deque()
        self._submitting, self._running = Lock(), Lock()
        self._runner = 0
        self._submitted = self._completed = 0

    @property
    def submitted(self) -> int:
        """Number of the operation that was submitted last."""
        return self._submitted

    @property
    def completed(self) -> int:
        """Number of the operation that completed last."""
        return self._completed

    def submit(self, operation: Operation) -> int:
        """Append an operation; its number."""
        with self._submitting:
            self._submitted += 1
            operation.sequence = operation.stream.last = self._submitted
            if operation.marker is not None and operation.name == "record":
                operation.marker.sequence = operation.sequence
            self._pending.append(operation)
        if self._submitted - self._completed > MOST_PENDING:
            self.drain(operation.sequence - MOST_PENDING)
        return operation.sequence

    def drain(self, until: int) -> None:
        """Run pending operations in order, up to the one with number ``until``."""
        if self._completed >= until:
            return
        if self._runner == get_ident():
            raise DeviceError("an operation of the device waits for the device, which would never end; wait outside it")
        with self._running:
            self._runner = get_ident()
            try:
                while self._completed < until:
                    self._run_next()
            finally:
                self._runner = 0

    def advance(self) -> None:
        """Run one operation, unless one is running already; polling makes progress by this."""
        if self._running.acquire(blocking=False):
            self._runner = get_ident()
            try:
                if self._pending:
                    self._run_next()
            finally:
                self._runner = 0
                self._running.release()

    def _run_next(self) -> None:
        operation = self._pending.popleft()
        try:
            self._run(operation)
        finally:
            self._completed = operation.sequence

    def _run(self, operation: Operation) -> None:
        stream = operation.stream
        if operation.engine is None:
            self._tell(operation, operation.run())
            return
        if stream.error is not None:
            return  # the operation before it in the stream failed
        try:
            cost = operation.run()
            self._tell(operation, cost)
        except DeviceError as error:
            stream.error = error
        except Exception as error:
            failure = LaunchFailureError(
                f"{operation.name} in stream {stream.number} failed: {error}; operations behind it in the stream "
                "were not run"
            )
            failure.__cause__ = error
            stream.error = failure
        except BaseException:
            stream.error = LaunchFailureError(f"{operation.name} was interrupted; run it again")
            raise
        else:
            start, end = self.timeline.place(operation.engine, max(operation.issued_s, stream.ready_s), cost)
            stream.ready_s = end
            self.timeline.add(Span(operation.name, operation.engine, stream.number, start, end, operation.nbytes, cost))

    def _tell(self, operation: Operation, cost: Cost) -> None:
        for observer in self.observers:
            observer.completed(operation, cost)
