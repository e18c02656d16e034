"""Which content of device memory is on chip between launches."""

from collections.abc import Sequence

from acf.runtime.backends.backend import Tensor
from acf.sim.memory import DramTraffic, Moved, OnChipMemory

MOST_PLACES = 4096
"""Places whose version is remembered before those that left the chip are forgotten."""


class Residency:
    """On-chip memory of ``capacity_bytes`` over the launches of a device; what a copy has overwritten is read again."""

    def __init__(self, capacity_bytes: int) -> None:
        self._memory = OnChipMemory(capacity_bytes)
        self._versions: dict[str, int] = {}

    def read(self, tensors: Sequence[Tensor], sizes: Sequence[int]) -> DramTraffic:
        """What crosses the DRAM pins because the two operands of a product, of ``sizes`` bytes, are read."""
        moved: list[Moved] = []
        self._prune()
        for tensor, nbytes in zip(tensors, sizes, strict=True):
            if self._versions.get(tensor.place) != tensor.version:
                self._memory.discard(tensor.place)
            self._versions[tensor.place] = tensor.version
            moved.append(self._memory.access(tensor.place, nbytes, external=True))
        left, right = moved
        return DramTraffic(left.read_bytes, right.read_bytes, left.written_bytes + right.written_bytes)

    def write(self, tensor: Tensor, nbytes: int) -> int:
        """Bytes that cross the pins because a result is written, evictions included."""
        self._memory.discard(tensor.place)
        self._versions[tensor.place] = tensor.version + 1
        return self._memory.write(tensor.place, nbytes)

    def _prune(self) -> None:
        """Forget places that are not on chip: they are read again whatever their version."""
        if len(self._versions) > MOST_PLACES:
            self._versions = {place: self._versions[place] for place in self._memory.resident}
            self._memory.seen.clear()
