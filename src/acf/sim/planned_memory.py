"""On-chip memory planned for a whole step: a training step is a program that a compiler knows from end to end.

The operations of a step touch tensors in an order that depends on no value. So the step is walked once without playing
it, to learn when every tensor is used next.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from acf.errors import ArchitectureError
from acf.sim.accelerator import AcceleratorSpec
from acf.sim.memory import DramTraffic, Moved, OnChipMemory
from acf.sim.vector import count_passes
from acf.trace import Trace, TracedOp, VectorOp

NEVER = 1 << 62
"""Later than any use of a step."""


class UseRecorder(OnChipMemory):
    """Moves nothing and records which tensor every access, in order, is of."""

    def __init__(self, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes)
        self.uses: list[str] = []

    def access(self, name: str, size_bytes: int, external: bool) -> Moved:
        """Record an access."""
        self.seen.add(name)
        self.sizes[name] = size_bytes
        self.uses.append(name)
        return Moved(0, 0)

    def write(self, name: str, size_bytes: int) -> int:
        """Record a write."""
        return self.access(name, size_bytes, external=False).total_bytes


class PlannedMemory(OnChipMemory):
    """A memory that holds parts of tensors; of what it holds, the tensor whose next use is farthest leaves first.

    ``uses``: the tensor of every access of the step, in order. What leaves and was produced in the step is written to
    DRAM, unless it is never used again; what is not there at its next use is read.
    """

    def __init__(self, capacity_bytes: int, uses: Sequence[str]) -> None:
        super().__init__(capacity_bytes)
        self.uses, self.now = uses, 0
        self.places: defaultdict[str, list[int]] = defaultdict(list)
        for place, name in enumerate(uses):
            self.places[name].append(place)
        self.dirty_bytes: dict[str, int] = {}
        self.next_use: dict[str, int] = {}

    def access(self, name: str, size_bytes: int, external: bool) -> Moved:
        """Access a tensor; the part of it that is not on chip is read."""
        produced = name not in self.seen and not external
        read = 0 if produced else size_bytes - self.resident.get(name, 0)
        return Moved(read, self._use(name, size_bytes, produced))

    def write(self, name: str, size_bytes: int) -> int:
        """Write a whole tensor that is read later; returns the bytes that leave for DRAM."""
        return self._use(name, size_bytes, produced=True)

    def discard(self, name: str) -> None:
        """Forget a tensor that nothing reads any more."""
        self.resident.pop(name, None)
        self.dirty_bytes.pop(name, None)

    def _use(self, name: str, size_bytes: int, produced: bool) -> int:
        """Hold all of a tensor, then let go what does not fit; returns the bytes that are written to DRAM."""
        if self.now >= len(self.uses) or self.uses[self.now] != name:
            raise ArchitectureError(
                f"tensor {name!r} is not what the plan of the memory uses next; plan it for the step that is played"
            )
        self.seen.add(name)
        self.sizes[name] = self.resident[name] = size_bytes
        if produced:
            self.dirty_bytes[name] = size_bytes
        later = self.places[name]
        following = bisect_right(later, self.now)
        self.next_use[name] = later[following] if following < len(later) else NEVER
        self.now += 1
        return self._make_room()

    def _make_room(self) -> int:
        written, excess = 0, sum(self.resident.values()) - self.capacity_bytes
        while excess > 0:
            name = max(self.resident, key=self.next_use.__getitem__)
            leaving = min(excess, self.resident[name])
            dirty = min(leaving, self.dirty_bytes.get(name, 0))
            written += dirty if self.next_use[name] != NEVER else 0
            self.dirty_bytes[name] = self.dirty_bytes.get(name, 0) - dirty
            self.resident[name] -= leaving
            excess -= leaving
            if not self.resident[name]:
                self.discard(name)
        return written


def on_chip_memory(traces: Iterable[Trace], spec: AcceleratorSpec) -> OnChipMemory:
    """The memory of ``spec``, planned for the step of ``traces`` where its ``memory_plan`` says so."""
    if spec.memory_plan == "lru":
        return OnChipMemory(spec.on_chip_bytes)
    recorder = UseRecorder(spec.on_chip_bytes)
    for trace in traces:
        for place, op in enumerate(trace.ops):
            _count(trace.vector_ops_after(place), spec, recorder)
            if spec.keeps_tensors:
                touch_operands(trace, op, spec, recorder)
        _count(trace.vector_ops_after(len(trace.ops)), spec, recorder)
    return PlannedMemory(spec.on_chip_bytes, recorder.uses)


def _count(ops: Iterable[VectorOp], spec: AcceleratorSpec, recorder: UseRecorder) -> None:
    for op in ops:
        for _ in count_passes(op, spec.vector_unit, recorder):
            pass


def touch_operands(trace: Trace, op: TracedOp, spec: AcceleratorSpec, memory: OnChipMemory) -> DramTraffic:
    """Bytes that cross the DRAM pins because the operands are used."""
    roles = dict(zip(op.operands, op.roles, strict=True))
    moved = {
        key: memory.access(key, spec.stored_bytes(trace.tensors[key], role), key in op.external)
        for key, role in roles.items()
    }
    return DramTraffic(
        left_bytes=moved[op.a].read_bytes,
        right_bytes=moved[op.b].read_bytes if op.b != op.a else 0,
        written_bytes=sum(each.written_bytes for each in moved.values()),
    )


def last_used(trace: Trace, place: int) -> list[str]:
    """Activations and gradients that no product after this one reads: those of gradient products, in their last use."""
    op = trace.ops[place]
    later = {key for each in trace.ops[place + 1 :] for key in each.operands}
    if op.phase == "forward":
        return []
    return [key for key, role in zip(op.operands, op.roles, strict=True) if role != "weight" and key not in later]
