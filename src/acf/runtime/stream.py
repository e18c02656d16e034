"""Streams and events: order within a stream, dependencies between streams, device time."""

from typing import TYPE_CHECKING

from acf.runtime.errors import InvalidResourceHandleError, NotReadyError
from acf.runtime.timeline import Cost
from acf.runtime.work_queue import HostStep, Operation, Recorded, StreamState

if TYPE_CHECKING:
    from acf.runtime.device import Device


class Stream:
    """Operations of a device that run in the order of submission. Streams of a device do not wait for each other."""

    def __init__(self, device: "Device") -> None:
        self.device = device
        self._state = device._new_stream_state()

    @property
    def number(self) -> int:
        """Number of the stream on its device; the default stream is 0."""
        return self._state.number

    def synchronize(self) -> None:
        """Wait until every operation of the stream is complete; raise the error of one that failed, once."""
        queue = self.device._queue
        queue.drain(self._state.last)
        self.device.timeline.wait_until(self._state.ready_s)
        self.device._tell(HostStep("synchronize", self.number))
        self.device._raise_error(self._state)

    def flush(self) -> None:
        """Run what is pending, so that its results are in memory, without letting the host's clock wait for it.

        Raises the error of an operation that failed, once.
        """
        self.device._queue.drain(self._state.last)
        self.device._raise_error(self._state)

    def query(self) -> bool:
        """Whether every operation of the stream is complete, without waiting."""
        self.device._queue.advance()
        return self.device._queue.completed >= self._state.last

    def wait(self, event: "Event") -> None:
        """Operations submitted to this stream from now on start after the event's last record is reached."""
        check_owner(self.device, event, "event")
        recorded, state = event._recorded, self._state
        if recorded is None:
            return  # as in CUDA, an event that was never recorded is complete
        self.device._submit(Operation("wait", state, lambda: _reach(recorded, state), marker=recorded))

    def __repr__(self) -> str:
        return f"<Stream {self.number} of {self.device}>"


class Event:
    """A marker in a stream: other streams wait for it, and two of them measure device time."""

    def __init__(self, device: "Device") -> None:
        self.device = device
        self._recorded: Recorded | None = None

    def record(self, stream: Stream | None = None) -> "Event":
        """Mark the end of everything submitted to ``stream`` so far; a second record replaces the first."""
        stream = self.device.default_stream if stream is None else stream
        check_owner(self.device, stream, "stream")
        recorded, state = Recorded(), stream._state
        self._recorded = recorded
        operation = Operation("record", state, lambda: _note(recorded, operation), marker=recorded)
        self.device._submit(operation)
        return self

    def synchronize(self) -> None:
        """Wait until the event is reached; raise the error of an operation before it that failed."""
        if self._recorded is None:
            return
        self.device._queue.drain(self._recorded.sequence)
        self.device.timeline.wait_until(self._recorded.time_s or 0.0)
        if self._recorded.error is not None:
            raise self._recorded.error

    def query(self) -> bool:
        """Whether the event is reached, without waiting; True if it was never recorded."""
        if self._recorded is None:
            return True
        self.device._queue.advance()
        return self._recorded.time_s is not None

    def elapsed(self, end: "Event") -> float:
        """Seconds of device time from this event to ``end``; both must be reached."""
        check_owner(self.device, end, "event")
        start_s = self._time_s()
        return end._time_s() - start_s

    def _time_s(self) -> float:
        if self._recorded is None:
            raise NotReadyError("the event was never recorded, so it has no time; call record and synchronize first")
        if self._recorded.time_s is None:
            raise NotReadyError("the event is not reached yet, so it has no time; call its synchronize first")
        return self._recorded.time_s


def check_owner(device: "Device", resource: Stream | Event, kind: str) -> None:
    """Refuse a stream or an event of another device, and what is neither."""
    if not isinstance(resource, Stream | Event):
        raise InvalidResourceHandleError(
            f"{resource!r} is no {kind} but a {type(resource).__name__}; create one with device.{kind}()"
        )
    if resource.device is not device:
        raise InvalidResourceHandleError(
            f"the {kind} belongs to another device, {resource.device}, and this call is for {device}; create one on it"
        )


def _note(recorded: Recorded, operation: Operation) -> Cost:
    """An event is reached when the stream is, and not before the host has submitted it."""
    stream = operation.stream
    recorded.time_s, recorded.error = max(stream.ready_s, operation.issued_s), stream.error
    return Cost()


def _reach(recorded: Recorded, stream: StreamState) -> Cost:
    stream.ready_s = max(stream.ready_s, recorded.time_s or 0.0)
    stream.error = stream.error or recorded.error
    return Cost()
