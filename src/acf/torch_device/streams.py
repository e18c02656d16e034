"""What torch asks of the device in C++: streams and events, which it knows by numbers, and memory in use."""

from collections.abc import Callable
from itertools import count

from acf.runtime import Event, Stream
from acf.torch_device.errors import TorchDeviceError
from acf.torch_device.memory import MEMORY_USE
from acf.torch_device.session import SESSION

DEFAULT_STREAM = 0
_NUMBERS = count(1)  # of streams and events; never used twice, so that those of a replaced device are told apart
_STREAMS: dict[int, Stream] = {}
_EVENTS: dict[int, Event] = {}


def stream_of(number: int) -> Stream:
    """The stream of the runtime device that torch knows by ``number``; 0 is the default stream."""
    device = SESSION.engine.device
    stream = SESSION.engine.compute if number == DEFAULT_STREAM else _STREAMS.get(number)
    if stream is None or stream.device is not device:
        raise TorchDeviceError(f"stream {number} is not one of {device}; make one with torch.Stream(device='acf')")
    return stream


def _event_of(number: int) -> Event:
    event = _EVENTS.get(number)
    if event is None or event.device is not SESSION.engine.device:
        raise TorchDeviceError(
            f"event {number} was not recorded on {SESSION.engine.device}; record a torch.Event(device='acf') on it"
        )
    return event


def _new_stream(_: int, __: int) -> float:
    number = next(_NUMBERS)
    _STREAMS[number] = SESSION.engine.device.stream()
    return number


def _record(number: int, stream: int) -> float:
    """Record an event, a new one where ``number`` is 0; its number."""
    event = _event_of(number) if number else SESSION.engine.device.event()
    event.record(stream_of(stream))
    number = number or next(_NUMBERS)
    _EVENTS[number] = event
    return number


def _wait(event: int, stream: int) -> float:
    stream_of(stream).wait(_event_of(event))
    return 0


def _synchronize_stream(stream: int, _: int) -> float:
    stream_of(stream).synchronize()
    return 0


def _synchronize_device(_: int, __: int) -> float:
    SESSION.engine.device.synchronize()
    return 0


def _synchronize_event(event: int, _: int) -> float:
    _event_of(event).synchronize()
    return 0


def _elapsed_ms(start: int, end: int) -> float:
    return _event_of(start).elapsed(_event_of(end)) * 1e3


def _destroy_event(event: int, _: int) -> float:
    _EVENTS.pop(event, None)
    return 0


def _reset_peak(_: int, __: int) -> float:
    MEMORY_USE.reset_peak()
    return 0


ANSWERS: tuple[Callable[[int, int], float], ...] = (
    _new_stream,
    lambda stream, _: stream_of(stream).query(),
    _synchronize_stream,
    _synchronize_device,
    _record,
    _wait,
    lambda event, _: _event_of(event).query(),
    _synchronize_event,
    _elapsed_ms,
    _destroy_event,
    lambda _, __: MEMORY_USE.current,
    lambda _, __: MEMORY_USE.peak,
    _reset_peak,
    lambda _, __: SESSION.engine.device.properties.memory_bytes,
)
"""What torch asks of the device, in the order of ``Question`` in ``native/streams.cpp``."""
