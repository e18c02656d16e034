"""A layer's weight in device memory: only blocks that differ from what the device holds travel."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from acf.offloading.engine import DeviceMatrix, ProductEngine, bf16_bytes
from acf.runtime import WeightBlocks, memcpy_async


class ResidentWeight:
    """The packed blocks of one weight on the device, bf16 ``[blocks, height, width]``."""

    def __init__(self, engine: ProductEngine) -> None:
        self._engine = engine
        self._sent: NDArray[np.uint8] | None = None
        self._matrix: DeviceMatrix | None = None

    def send(self, packed: Tensor, blocks: WeightBlocks) -> DeviceMatrix:
        """Copy the blocks of ``packed`` whose bf16 values changed; the blocks in device memory.

        Slots keep their place in memory when the topology moves, so a move sends the regrown blocks alone.
        """
        content = bf16_bytes(packed).reshape(blocks.shape[0], -1)
        if self._matrix is None or self._sent is None or self._sent.shape != content.shape:
            self._matrix = DeviceMatrix(self._engine.device.malloc(content.size))
            memcpy_async(self._matrix.buffer, content.reshape(-1), self._engine.copies)
        else:
            changed = (content != self._sent).any(axis=1)
            size = content.shape[1]
            for start, stop in _runs(changed):
                region = self._matrix.buffer[start * size : stop * size]
                memcpy_async(region, content[start:stop].reshape(-1), self._engine.copies)
        self._sent = content.copy()
        return self._matrix


def _runs(marks: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """First and last plus one of every run of True.

    >>> list(_runs(np.array([True, True, False, True])))
    [(0, 2), (3, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([False], marks, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
