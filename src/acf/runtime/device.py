"""A device: its memory, its streams, and the clocks of what runs on it."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from threading import Lock
from time import perf_counter

import numpy as np
from numpy.typing import ArrayLike

from acf.runtime import numbers
from acf.runtime.backends import Backend, make_backend
from acf.runtime.backends.backend import Architecture
from acf.runtime.copy import check_regions, memcpy
from acf.runtime.errors import InvalidValueError, MemoryAllocationError
from acf.runtime.link import HostLink
from acf.runtime.memory import Allocator, Buffer, Region, check_bytes
from acf.runtime.product import Product
from acf.runtime.program import Program
from acf.runtime.rtl_spec import RtlSpec
from acf.runtime.stream import Event, Stream, check_owner
from acf.runtime.timeline import Cost, Timeline
from acf.runtime.work_queue import HostStep, Observer, Operation, StreamState, WorkQueue
from acf.sim import find_architecture

MEMORY_BYTES = 4 * 2**30


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is. ``architecture``, ``clock_hz`` and ``macs_per_cycle`` are None where nothing is modelled."""

    backend: str
    architecture: str | None
    memory_bytes: int
    clock_hz: float | None
    macs_per_cycle: int | None
    link: HostLink


class Device:
    """A device of one backend: "reference", "cpu", "cuda", "sim" or "rtl".

    ``spec``: the architecture that "sim" or "rtl" models, a name such as "acf-512", a TOML file or a Spec; for "rtl"
    also an `RtlSpec`. ``link``: the host link of the modelled timeline; the other backends report the times of the
    machine they run on. ``walked``: compile for "sim" as for "rtl", with the left operand streamed.

    Operations are asynchronous: they wait in the device's queue until a host thread synchronises with them. All methods
    may be called from any thread.
    """

    def __init__(
        self,
        backend: str = "sim",
        spec: Architecture | RtlSpec | None = None,
        *,
        link: HostLink | None = None,
        memory_bytes: int = MEMORY_BYTES,
        walked: bool = False,
    ) -> None:
        if not isinstance(memory_bytes, int) or memory_bytes < 1:
            raise InvalidValueError(f"memory_bytes {memory_bytes!r} is no integer from 1; give the device some memory")
        self.backend: Backend = make_backend(backend, spec, link or HostLink(), walked)
        self.timeline = Timeline()
        self._queue = WorkQueue(self.timeline)
        self._allocator, self._lock = Allocator(memory_bytes), Lock()
        self._released: deque[tuple[int, Buffer]] = deque()
        self._streams: list[StreamState] = []
        self.default_stream = Stream(self)

    @property
    def properties(self) -> DeviceProperties:
        """What the device is."""
        spec = self.backend.spec
        return DeviceProperties(
            backend=self.backend.name,
            architecture=None if spec is None else find_architecture(spec)[0],
            memory_bytes=self._allocator.capacity,
            clock_hz=None if spec is None else spec.clock_hz,
            macs_per_cycle=None if spec is None else spec.macs_per_cycle,
            link=self.backend.link,
        )

    @property
    def observers(self) -> list[Observer]:
        """Those who hear of everything that runs; `record` adds one."""
        return self._queue.observers

    @property
    def free_bytes(self) -> int:
        """Bytes of device memory that are not allocated."""
        with self._lock:
            self._reclaim()
            return self._allocator.free_bytes

    def malloc(self, nbytes: int) -> Buffer:
        """Allocate ``nbytes``, aligned to pages of 4096; the content is zero. Waits only where memory is short."""
        check_bytes(nbytes)
        try:
            return self._allocate(nbytes)
        except MemoryAllocationError:
            if not self._released:
                raise
        self._queue.drain(self._queue.submitted)  # freed memory comes back once what was submitted before is complete
        return self._allocate(nbytes)

    def free(self, buffer: Buffer) -> None:
        """Return a buffer's memory once everything submitted so far is complete; never waits.

        Takes no lock, so that finalizers may call it, whatever their thread is doing.
        """
        Region(buffer, 0, 0).check(self)
        buffer.is_freed = True
        self._released.append((self._queue.submitted, buffer))

    def stream(self) -> Stream:
        """A new stream."""
        return Stream(self)

    def event(self) -> Event:
        """A new event."""
        return Event(self)

    def compile(self, product: Product) -> Program:
        """The program of a product for this device; refuses one whose operands its memory could never hold."""
        nbytes, capacity = sum(each.nbytes for each in product.arguments), self._allocator.capacity
        if nbytes > capacity:
            raise MemoryAllocationError(
                f"the operands of {product.name!r} take {nbytes} bytes, more than the {capacity} of the device; divide "
                "the product, or create the device with more memory_bytes"
            )
        return self.backend.compile(product)

    def upload(self, values: ArrayLike, dtype: str = "bf16", stream: Stream | None = None) -> Buffer:
        """A new buffer with an array's values, "bf16" or "fp32"."""
        content = numbers.encode(values, dtype)
        buffer = self.malloc(content.size)
        memcpy(buffer, content, stream)
        return buffer

    def download(self, memory: Buffer | Region, shape: Sequence[int], dtype: str = "fp32") -> numbers.Values:
        """Wait for the default stream, and read an array of ``shape`` from device memory, float32."""
        content = np.zeros(memory.nbytes, dtype=np.uint8)
        memcpy(content, memory)
        return numbers.decode(content, dtype, tuple(shape))

    def charge(self, engine: str, cost: Cost, stream: Stream | None = None, name: str = "") -> None:
        """Put work on the timeline that moves no data here: ``cost`` of an engine, in the order of ``stream``."""
        if not isinstance(cost, Cost) or not _is_duration(cost.seconds):
            raise InvalidValueError(f"{cost!r} costs no finite time from 0 up; pass such as Cost(seconds=1e-6)")
        used = self._used_stream(stream)
        self._submit(Operation(name or f"charge {engine}", used._state, lambda: cost, engine))

    def synchronize(self) -> None:
        """Wait until everything submitted is complete; raise the error of an operation that failed, once."""
        self._queue.drain(self._queue.submitted)
        with self._lock:
            streams = list(self._streams)
        self.timeline.wait_until(max(stream.ready_s for stream in streams))
        self._tell(HostStep("synchronize"))
        errors = [stream.error for stream in streams if stream.error is not None]
        for stream in streams:
            stream.error = None
        if errors:
            raise errors[0]

    def host_work(self, seconds: float) -> None:
        """Advance the host's clock by ``seconds`` of work that the host did itself, such as an optimizer step."""
        if not _is_duration(seconds):
            raise InvalidValueError(f"{seconds!r} seconds of host work are no finite time; give seconds from 0 up")
        self.timeline.host_work(seconds)
        self._tell(HostStep("work", seconds=seconds))

    def __repr__(self) -> str:
        named = [self.backend.name, self.properties.architecture]
        return f"Device({', '.join(repr(each) for each in named if each is not None)})"

    def _allocate(self, nbytes: int) -> Buffer:
        with self._lock:
            self._reclaim()
            address = self._allocator.take(nbytes)
            try:
                storage = self.backend.allocate(nbytes)
            except (MemoryError, RuntimeError) as error:
                self._allocator.give_back(address, nbytes)
                raise MemoryAllocationError(
                    f"this machine has no room for a buffer of {nbytes} bytes ({error}); free some, or ask for less"
                ) from error
            return Buffer(self, address, nbytes, storage)

    def _reclaim(self) -> None:
        """Take back the memory of freed buffers that no pending operation uses; the lock is held."""
        while self._released and self._released[0][0] <= self._queue.completed:
            _, buffer = self._released.popleft()
            if buffer.holds_memory:  # two threads may have freed it at the same moment
                self._allocator.give_back(buffer.address, buffer.nbytes)
                buffer.holds_memory = False

    def _new_stream_state(self) -> StreamState:
        with self._lock:
            state = StreamState(len(self._streams))
            self._streams.append(state)
            return state

    def _tell(self, step: HostStep) -> None:
        for observer in self.observers:
            observer.host(step)

    def _raise_error(self, stream: StreamState) -> None:
        error, stream.error = stream.error, None
        if error is not None:
            raise error

    def _submit(self, operation: Operation) -> None:
        operation.issued_s = self.timeline.submit(self.backend.link.submission_s)
        self._queue.submit(operation)

    def _copy(
        self, direction: str, regions: list[Region], nbytes: int, run: Callable[[], None], stream: Stream | None
    ) -> Stream:
        """Submit a copy, and give the stream it is in."""
        used = self._used_stream(stream)
        check_regions(self, regions)

        def timed() -> Cost:
            began = perf_counter()
            run()
            return self.backend.copy_cost(direction, nbytes, perf_counter() - began)

        self._submit(Operation(f"memcpy {direction}", used._state, timed, direction, nbytes))
        return used

    def _launch(self, program: Program, regions: list[Region], stream: Stream | None) -> None:
        used = self._used_stream(stream)
        self.backend.check(program)
        run = partial(self.backend.run, program, regions)
        self._submit(Operation(program.name, used._state, run, "compute", program=program, regions=regions))

    def _used_stream(self, stream: Stream | None) -> Stream:
        if stream is None:
            return self.default_stream
        check_owner(self, stream, "stream")
        return stream


def _is_duration(seconds: object) -> bool:
    return isinstance(seconds, int | float) and isfinite(seconds) and seconds >= 0
