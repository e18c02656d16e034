"""Which tensors sit on chip and what crosses the DRAM pins."""

from collections import OrderedDict
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True)
class DramTraffic:
    """Bytes that cross the DRAM pins during one operation: reads of its operands, and write-backs of older tensors."""

    left_bytes: int = 0
    right_bytes: int = 0
    written_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Bytes in both directions."""
        return self.left_bytes + self.right_bytes + self.written_bytes

    def divided(self, products: int) -> "DramTraffic":
        """What each of the products of an operation moves, rounded up."""
        parts = (ceil(part / max(1, products)) for part in (self.left_bytes, self.right_bytes, self.written_bytes))
        return DramTraffic(*parts)

    def times(self, products: int) -> "DramTraffic":
        """What several products of this traffic move."""
        return DramTraffic(self.left_bytes * products, self.right_bytes * products, self.written_bytes * products)


@dataclass(frozen=True)
class Moved:
    """Bytes that one access moved across the DRAM pins."""

    read_bytes: int
    written_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes in both directions."""
        return self.read_bytes + self.written_bytes


class OnChipMemory:
    """A cache of whole tensors with least-recently-used replacement and write-back.

    A tensor that the step produces starts on chip and dirty: when evicted, it is written to DRAM, and read again at its
    next use. A tensor from outside the step is read at its first use. One larger than the memory streams every time.
    ``sizes``: bytes of every tensor that was accessed, by name.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.resident: OrderedDict[str, int] = OrderedDict()
        self.dirty: set[str] = set()
        self.seen: set[str] = set()
        self.sizes: dict[str, int] = {}

    def touch(self, name: str, size_bytes: int, external: bool) -> int:
        """Access a tensor; returns the bytes that this moves across the DRAM pins, evictions included."""
        return self.access(name, size_bytes, external).total_bytes

    def access(self, name: str, size_bytes: int, external: bool) -> Moved:
        """As `touch`, with reads and write-backs apart."""
        produced = name not in self.seen and not external
        self.seen.add(name)
        self.sizes[name] = size_bytes
        if size_bytes > self.capacity_bytes:
            return Moved(size_bytes, size_bytes if produced else 0)
        if name in self.resident:
            self.resident.move_to_end(name)
            return Moved(0, 0)
        if produced:
            self.dirty.add(name)
        return Moved(0 if produced else size_bytes, self._keep(name, size_bytes))

    def write(self, name: str, size_bytes: int) -> int:
        """Write a whole tensor that is read later; returns the bytes across the DRAM pins, evictions included."""
        self.seen.add(name)
        self.sizes[name] = size_bytes
        if size_bytes > self.capacity_bytes:
            return size_bytes
        self.dirty.add(name)
        return self._keep(name, size_bytes)

    def discard(self, name: str) -> None:
        """Forget a tensor that nothing reads any more: it is not written to DRAM."""
        self.resident.pop(name, None)
        self.dirty.discard(name)

    def _keep(self, name: str, size_bytes: int) -> int:
        """Make a tensor the most recently used one; returns the bytes of dirty tensors that it evicts."""
        written = 0
        self.resident[name] = size_bytes
        self.resident.move_to_end(name)
        while sum(self.resident.values()) > self.capacity_bytes:
            evicted, evicted_bytes = self.resident.popitem(last=False)
            if evicted in self.dirty:
                self.dirty.discard(evicted)
                written += evicted_bytes
        return written
