"""Device memory: an allocator over its address range, buffers, regions of buffers, and pinned host memory."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from acf.runtime.errors import (
    IllegalAddressError,
    InvalidDevicePointerError,
    InvalidValueError,
    MemoryAllocationError,
)

if TYPE_CHECKING:
    from acf.runtime.device import Device

Bytes = NDArray[np.uint8]

PAGE_BYTES = 4096
"""Alignment of every buffer: the page that descriptors count in."""


class Storage(Protocol):
    """What holds the bytes of one buffer."""

    def read(self, offset: int, nbytes: int) -> Bytes:
        """A copy of some bytes."""

    def write(self, offset: int, content: Bytes) -> None:
        """Replace some bytes."""


class HostStorage:
    """Bytes in the host's memory, for devices that are modelled or are the host itself."""

    def __init__(self, nbytes: int) -> None:
        self.content: Bytes = np.zeros(nbytes, dtype=np.uint8)

    def read(self, offset: int, nbytes: int) -> Bytes:
        """A copy of some bytes."""
        return self.content[offset : offset + nbytes].copy()

    def write(self, offset: int, content: Bytes) -> None:
        """Replace some bytes."""
        self.content[offset : offset + content.size] = content


class Allocator:
    """First fit over ``capacity`` bytes in whole pages; neighbouring free ranges are joined.

    >>> allocator = Allocator(3 * 4096)
    >>> allocator.take(5000), allocator.take(1)
    (0, 8192)
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity // PAGE_BYTES * PAGE_BYTES
        self._free: list[tuple[int, int]] = [(0, self.capacity)] if self.capacity else []

    @property
    def free_bytes(self) -> int:
        """Bytes that are not allocated, in ranges that may be apart."""
        return sum(size for _, size in self._free)

    def take(self, nbytes: int) -> int:
        """The address of a free range of ``nbytes``, rounded up to pages."""
        needed = pages_of(nbytes)
        for place, (start, size) in enumerate(self._free):
            if size >= needed:
                rest = [(start + needed, size - needed)] if size > needed else []
                self._free[place : place + 1] = rest
                return start
        largest = max((size for _, size in self._free), default=0)
        raise MemoryAllocationError(
            f"{nbytes} bytes do not fit: {self.free_bytes} of {self.capacity} bytes are free, the largest range has "
            f"{largest}; free buffers, or create the device with more memory_bytes"
        )

    def give_back(self, address: int, nbytes: int) -> None:
        """Return a range."""
        insort(self._free, (address, pages_of(nbytes)))
        joined: list[tuple[int, int]] = []
        for start, size in self._free:
            if joined and sum(joined[-1]) == start:
                joined[-1] = joined[-1][0], joined[-1][1] + size
            else:
                joined.append((start, size))
        self._free = joined


def pages_of(nbytes: int) -> int:
    """``nbytes`` rounded up to whole pages, at least one."""
    return max(1, -(-nbytes // PAGE_BYTES)) * PAGE_BYTES


_NUMBERS = count()


class Buffer:
    """``nbytes`` of device memory from ``address`` on; made by `Device.malloc`, returned by `free`.

    ``buffer[16:32]`` is the `Region` of those bytes. ``number`` is its own, even if another buffer has had the address;
    ``version`` counts the operations that wrote it.
    """

    def __init__(self, device: "Device", address: int, nbytes: int, storage: Storage) -> None:
        self.device, self.address, self.nbytes = device, address, nbytes
        self.number = next(_NUMBERS)
        self.version = 0
        self.is_freed, self.holds_memory = False, True
        self.storage = storage

    def free(self) -> None:
        """Return the memory once pending operations are complete, without waiting; a second time is refused."""
        self.device.free(self)

    def __getitem__(self, span: slice) -> "Region":
        if span.step not in (None, 1):
            raise InvalidValueError(f"step {span.step} of a region is not 1; copy consecutive bytes")
        start = 0 if span.start is None else span.start
        stop = self.nbytes if span.stop is None else span.stop
        return Region(self, start, stop - start)

    def __repr__(self) -> str:
        return f"<Buffer of {self.nbytes} bytes at {self.address:#x} of {self.device}>"


@dataclass(frozen=True)
class Region:
    """``nbytes`` of a buffer from ``offset`` on."""

    buffer: Buffer
    offset: int
    nbytes: int

    def __post_init__(self) -> None:
        if not isinstance(self.buffer, Buffer):
            raise InvalidDevicePointerError(
                f"{self.buffer!r} is no buffer but a {type(self.buffer).__name__}; allocate one with device.malloc"
            )
        if not all(isinstance(each, int | np.integer) for each in (self.offset, self.nbytes)):
            raise InvalidValueError(f"offset {self.offset!r} and nbytes {self.nbytes!r} are not integers; give bytes")
        if self.offset < 0 or self.nbytes < 0 or self.offset + self.nbytes > self.buffer.nbytes:
            raise IllegalAddressError(
                f"bytes {self.offset} to {self.offset + self.nbytes} are outside the buffer of {self.buffer.nbytes} "
                "bytes; give a region inside it"
            )

    def check(self, device: "Device") -> None:
        """Refuse memory that was freed or belongs to another device."""
        if self.buffer.device is not device:
            raise InvalidDevicePointerError(
                f"{self.buffer} was used with another device, {device}; copy it through the host, or use buffers of one"
            )
        if self.buffer.is_freed:
            raise InvalidDevicePointerError(
                f"the buffer at {self.buffer.address:#x} of {self.buffer.nbytes} bytes was freed; use it before free, "
                "or allocate another"
            )

    def overlaps(self, other: "Region") -> bool:
        """Whether two regions share a byte."""
        apart = self.offset + self.nbytes <= other.offset or other.offset + other.nbytes <= self.offset
        return self.buffer is other.buffer and not apart and self.nbytes > 0 and other.nbytes > 0

    def read(self) -> Bytes:
        """A copy of the bytes, as they are when this runs."""
        return self.buffer.storage.read(self.offset, self.nbytes)

    def write(self, content: Bytes) -> None:
        """Replace the first bytes of the region by ``content``."""
        self.buffer.storage.write(self.offset, content)
        self.buffer.version += 1


class HostBuffer:
    """Pinned host memory: copies between it and a device are asynchronous. ``array`` is its content, uint8."""

    def __init__(self, nbytes: int) -> None:
        check_bytes(nbytes)
        self.array: Bytes = np.zeros(nbytes, dtype=np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return int(self.array.size)

    def view(self, dtype: DTypeLike, shape: Sequence[int]) -> NDArray[Any]:
        """The content as an array that shares the memory."""
        return self.array.view(dtype).reshape(shape)


def check_bytes(nbytes: int) -> None:
    """Refuse what is no number of bytes."""
    if not isinstance(nbytes, int | np.integer) or nbytes < 0:
        raise InvalidValueError(f"{nbytes!r} bytes cannot be allocated; give an integer from 0 up")
