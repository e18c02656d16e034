"""Recording what runs on a device, and replaying it on another device or Spec.

A recording keeps zero patterns, not values: a replay multiplies ones where an operand was not zero, so that times and
energies are those of the run, and results are not. Files are safetensors with JSON in the metadata.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from acf.files import write_whole
from acf.runtime.backends.backend import Launched, Tensor
from acf.runtime.device import Device
from acf.runtime.errors import InvalidImageError
from acf.runtime.program import Program
from acf.runtime.stream import Event, Stream
from acf.runtime.timeline import Cost, Usage
from acf.runtime.work_queue import HostStep, Operation, Recorded
from acf.schema import read_as
from acf.trace import BitTensor

FORMAT = "acf.recording.v1"


@dataclass(frozen=True)
class RecordedOperation:
    """One operation in the order of running. ``kind``: "launch", "copy", "charge", "record", "wait", or what the host
    did: "synchronize" (``stream`` -1: the whole device) and "work" of ``seconds``.

    A copy has its direction as ``engine``; a charge keeps its ``seconds`` of an engine on every device. A launch names
    its ``program`` and the patterns of operands and result by number, and their ``places`` in memory with versions.
    ``event`` numbers the records; a wait names the record that it waits for.
    """

    kind: str
    stream: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    engine: str = ""
    event: int = -1
    program: int = -1
    patterns: tuple[int, ...] = ()
    places: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()


@dataclass(eq=False)
class Recording:
    """What ran on a device: operations, the programs that were launched, and zero patterns of their arguments."""

    operations: list[RecordedOperation] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    patterns: list[BitTensor] = field(default_factory=list)

    def save(self, path: str | Path) -> None:
        """Write the recording to a file, atomically."""
        arrays: dict[str, NDArray[np.uint8]] = {}
        for number, program in enumerate(self.programs):
            arrays[f"program {number}"] = np.frombuffer(program.to_bytes(), dtype=np.uint8)
        for number, pattern in enumerate(self.patterns):
            arrays[f"pattern {number}"] = pattern.packed
        header = {
            "operations": [asdict(each) for each in self.operations],
            "programs": len(self.programs),
            "shapes": [pattern.shape for pattern in self.patterns],
        }
        write_whole(Path(path), save(arrays, metadata={FORMAT: json.dumps(header)}))

    @classmethod
    def load(cls, path: str | Path) -> "Recording":
        """Read a recording; anything else is refused."""
        try:
            with safe_open(Path(path), framework="numpy") as file:
                text = (file.metadata() or {}).get(FORMAT)
                if text is None:
                    raise InvalidImageError(f"{path} is no {FORMAT}; pass a file that Recording.save wrote")
                header = json.loads(text)
                programs = [file.get_tensor(f"program {number}") for number in range(header["programs"])]
                patterns = [file.get_tensor(f"pattern {number}") for number in range(len(header["shapes"]))]
            operations = [_operation(values, place) for place, values in enumerate(header["operations"])]
            _check_numbers(operations, len(programs), len(patterns))
            bits = [BitTensor(tuple(s), packed) for s, packed in zip(header["shapes"], patterns, strict=True)]
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidImageError):
                raise
            raise InvalidImageError(f"{path} is no whole recording ({error}); record and save it again") from error
        return cls(operations, [Program.from_bytes(each.tobytes()) for each in programs], bits)

    def replay(self, device: Device) -> Usage:
        """Run the recording on ``device``, with each product compiled for it, and say where the time went."""
        since_s = device.timeline.host_s
        _Replay(self, device).run()
        device.synchronize()
        return device.timeline.usage(since_s)


@contextmanager
def record(device: Device) -> Iterator[Recording]:
    """Record everything that runs on ``device`` inside the ``with`` block, which ends with a synchronisation."""
    device.synchronize()
    recording = Recording()
    recorder = _Recorder(recording)
    device.observers.append(recorder)
    try:
        yield recording
        device.synchronize()
    finally:
        device.observers.remove(recorder)


class _Recorder:
    """Appends what completes to a recording; equal programs and patterns are kept once."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._numbers: dict[object, int] = {}
        self._programs: dict[int, int] = {}
        self._events: dict[int, int] = {}
        self._markers: list[Recorded] = []

    def completed(self, operation: Operation, cost: Cost) -> None:
        """An operation of the device has run."""
        engine = operation.engine or ""
        plain = RecordedOperation("charge", operation.stream.number, operation.nbytes, cost.seconds, engine)
        recorded = plain
        if operation.program is not None:
            arguments = list(zip(operation.program.arguments, operation.regions, strict=True))
            tensors = [Tensor.of(region) for _, region in arguments]
            recorded = replace(
                plain,
                kind="launch",
                program=self._program(operation.program),
                patterns=tuple(self._pattern(argument.decode(region.read())) for argument, region in arguments),
                places=tuple(each.place for each in tensors),
                versions=tuple(each.version for each in tensors),
            )
        elif operation.marker is not None:
            recorded = replace(plain, kind=operation.name, event=self._event(operation.marker))
        elif operation.name == f"memcpy {engine}":
            recorded = replace(plain, kind="copy")
        self.recording.operations.append(recorded)

    def host(self, step: HostStep) -> None:
        """The host has synchronised or worked."""
        self.recording.operations.append(RecordedOperation(step.kind, step.stream, seconds=step.seconds))

    def _event(self, marker: Recorded) -> int:
        self._markers.append(marker)  # kept alive, so that its identity stays its own
        return self._events.setdefault(id(marker), len(self._events))

    def _program(self, program: Program) -> int:
        if id(program) not in self._programs:
            self._programs[id(program)] = len(self.recording.programs)
            self.recording.programs.append(program)
        return self._programs[id(program)]

    def _pattern(self, values: NDArray[np.float32]) -> int:
        bits = BitTensor.from_array(values)
        key = bits.shape, blake2b(bits.packed.tobytes(), digest_size=16).digest()
        if key not in self._numbers:
            self._numbers[key] = len(self.recording.patterns)
            self.recording.patterns.append(bits)
        return self._numbers[key]


class _Replay:
    """Submits recorded operations to a device, on streams and events of its own."""

    def __init__(self, recording: Recording, device: Device) -> None:
        self.recording, self.device = recording, device
        numbers = {each.stream for each in recording.operations if each.stream >= 0}
        self.streams = {number: device.stream() for number in sorted(numbers)}
        self.events: dict[int, Event] = {}
        self.programs: dict[int, Program] = {}

    def run(self) -> None:
        for operation in self.recording.operations:
            _REPLAY[operation.kind](self, operation)

    def launch(self, operation: RecordedOperation) -> None:
        program = self._compiled(operation.program)
        state = self.streams[operation.stream]._state

        def run() -> Cost:
            if program.product is None:
                return Cost()
            *operands, result = (self._ones(number) for number in operation.patterns)
            *tensors, written = map(Tensor, operation.places, operation.versions)
            before = Tensor(written.place, written.version - 1)  # the recorded version is that after the launch
            return self.device.backend.replay(Launched(program, operands, tensors, before), result)

        self.device._submit(Operation(program.name, state, run, "compute"))

    def copy(self, operation: RecordedOperation) -> None:
        backend, direction, nbytes = self.device.backend, operation.engine, operation.nbytes
        state = self.streams[operation.stream]._state
        run = lambda: backend.copy_cost(direction, nbytes, 0.0)  # noqa: E731
        self.device._submit(Operation(f"memcpy {direction}", state, run, direction, nbytes))

    def charge(self, operation: RecordedOperation) -> None:
        self.device.charge(operation.engine, Cost(operation.seconds), self.streams[operation.stream])

    def record(self, operation: RecordedOperation) -> None:
        self.events[operation.event] = self.device.event().record(self.streams[operation.stream])

    def wait(self, operation: RecordedOperation) -> None:
        if operation.event in self.events:  # else it was recorded before the recording began
            self.streams[operation.stream].wait(self.events[operation.event])

    def synchronize(self, operation: RecordedOperation) -> None:
        streams: list[Stream] = list(self.streams.values())
        for stream in streams if operation.stream < 0 else [self.streams[operation.stream]]:
            stream.synchronize()

    def work(self, operation: RecordedOperation) -> None:
        self.device.host_work(operation.seconds)

    def _compiled(self, number: int) -> Program:
        """A recorded program for this device; lowered anew, since it may be another fabric."""
        if number not in self.programs:
            product = self.recording.programs[number].product
            self.programs[number] = Program.empty() if product is None else self.device.compile(product)
        return self.programs[number]

    def _ones(self, number: int) -> NDArray[np.float32]:
        return self.recording.patterns[number].to_bool().astype(np.float32)


_REPLAY = {
    "launch": _Replay.launch,
    "copy": _Replay.copy,
    "charge": _Replay.charge,
    "record": _Replay.record,
    "wait": _Replay.wait,
    "synchronize": _Replay.synchronize,
    "work": _Replay.work,
}


def _operation(values: Any, place: int) -> RecordedOperation:
    operation = read_as(RecordedOperation, values, f"operations.{place}")
    if operation.kind not in _REPLAY:
        raise InvalidImageError(f"operation {operation.kind!r} of a recording is not one of {', '.join(_REPLAY)}")
    return operation


def _check_numbers(operations: list[RecordedOperation], programs: int, patterns: int) -> None:
    """Refuse operations that name a program or a pattern that is not there, or take less than nothing."""
    for place, each in enumerate(operations):
        named = [each.program] if each.kind == "launch" else []
        if (
            any(not 0 <= number < programs for number in named)
            or any(not 0 <= number < patterns for number in each.patterns)
            or (each.kind == "launch" and not len(each.patterns) == len(each.places) == len(each.versions))
        ):
            raise ValueError(f"operations.{place} names programs or patterns that are not there")
        needs_stream = each.kind not in ("synchronize", "work")
        if each.nbytes < 0 or each.seconds < 0 or (needs_stream and each.stream < 0):
            raise ValueError(f"operations.{place} has a negative number of bytes or seconds, or no stream")
