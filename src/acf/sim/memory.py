"""Which tensors sit on chip and what crosses the DRAM pins."""

from collections import OrderedDict


class OnChipMemory:
    """Whole tensors under least-recently-used replacement with write-back.

    A tensor made during the step is born on chip; evicted, it is written to DRAM and read again at its next
    use. A tensor from outside the step is read at its first use. One larger than the memory streams every time.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.resident: OrderedDict[str, int] = OrderedDict()
        self.dirty: set[str] = set()
        self.seen: set[str] = set()

    def touch(self, name: str, size_bytes: int, external: bool) -> int:
        """Use a tensor; returns the bytes that cross the DRAM pins because of it."""
        moved = 0
        born = name not in self.seen and not external
        self.seen.add(name)
        if size_bytes > self.capacity_bytes:
            return 2 * size_bytes if born else size_bytes
        if name in self.resident:
            self.resident.move_to_end(name)
            return 0
        if born:
            self.dirty.add(name)
        else:
            moved += size_bytes
        self.resident[name] = size_bytes
        while sum(self.resident.values()) > self.capacity_bytes:
            evicted, evicted_bytes = self.resident.popitem(last=False)
            if evicted in self.dirty:
                self.dirty.discard(evicted)
                moved += evicted_bytes
        return moved
