"""Zero patterns that stay in their file until they are needed: of a trace that is too large to be held in memory."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from acf.errors import TraceError
from acf.trace.bits import BitTensor


class TraceFile:
    """An open file, read by position; it stays readable when another file takes its name.

    It is not memory-mapped: a mapped file that someone truncates ends the process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        finalize(self, os.close, self._descriptor)

    def read(self, offset: int, size: int) -> NDArray[np.uint8]:
        """``size`` bytes from ``offset`` on."""
        content = np.empty(size, dtype=np.uint8)
        done = 0
        while done < size:
            count = os.preadv(self._descriptor, [content[done:].data], offset + done)
            if not count:
                raise TraceError(f"{self.path} has become shorter than it was; capture the step and save it again")
            done += count
        return content


@dataclass(frozen=True)
class Span:
    """Bytes ``offset`` to ``offset + size`` of a file."""

    file: TraceFile
    offset: int
    size: int

    def read(self) -> NDArray[np.uint8]:
        """The bytes."""
        return self.file.read(self.offset, self.size)


class StoredBits(BitTensor):
    """A zero pattern of ``shape`` that is read from its file whenever it is asked for."""

    def __init__(self, shape: tuple[int, ...], span: Span) -> None:
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "_span", span)
        BitTensor(shape, self.packed)  # refuses a pattern of another size

    @property
    def packed(self) -> NDArray[np.uint8]:
        """The bits, read anew."""
        span: Any = getattr(self, "_span")  # noqa: B009
        content: NDArray[np.uint8] = span.read()
        return content
