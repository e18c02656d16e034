"""Which tensors sit on chip and what crosses the DRAM pins."""

from collections import OrderedDict


class OnChipMemory:
    """A cache of whole tensors with least-recently-used replacement and write-back.

    A tensor that the step produces starts on chip and dirty: when evicted, it is written to DRAM, and read again at its
    next use. A tensor from outside the step is read at its first use. One larger than the memory streams every time.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.resident: OrderedDict[str, int] = OrderedDict()
        self.dirty: set[str] = set()
        self.seen: set[str] = set()

    def touch(self, name: str, size_bytes: int, external: bool) -> int:
        """Access a tensor; returns the bytes that this moves across the DRAM pins, evictions included."""
        produced = name not in self.seen and not external
        self.seen.add(name)
        if size_bytes > self.capacity_bytes:
            return 2 * size_bytes if produced else size_bytes
        if name in self.resident:
            self.resident.move_to_end(name)
            return 0
        if produced:
            self.dirty.add(name)
        return (0 if produced else size_bytes) + self._keep(name, size_bytes)

    def write(self, name: str, size_bytes: int) -> int:
        """Write a whole tensor that is read later; returns the bytes across the DRAM pins, evictions included."""
        self.seen.add(name)
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
        moved = 0
        self.resident[name] = size_bytes
        self.resident.move_to_end(name)
        while sum(self.resident.values()) > self.capacity_bytes:
            evicted, evicted_bytes = self.resident.popitem(last=False)
            if evicted in self.dirty:
                self.dirty.discard(evicted)
                moved += evicted_bytes
        return moved
