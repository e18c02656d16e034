"""Counting the ops that fell back to the host."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fallback:
    """An op that ran on the host: how often, and the bytes that it read and wrote there."""

    op: str
    calls: int
    nbytes: int


class Counters:
    """Counts by op; one object serves the process."""

    def __init__(self) -> None:
        self._fallbacks: dict[str, tuple[int, int]] = {}

    def add_fallback(self, op: str, nbytes: int) -> None:
        """One call on the host of an op that read and wrote ``nbytes``."""
        calls, total = self._fallbacks.get(op, (0, 0))
        self._fallbacks[op] = calls + 1, total + nbytes

    def fallbacks(self) -> list[Fallback]:
        """Every op that ran on the host, the one with the most bytes first."""
        found = (Fallback(op, *counts) for op, counts in self._fallbacks.items())
        return sorted(found, key=lambda each: (-each.nbytes, each.op))

    def reset(self) -> None:
        """Start again from nothing."""
        self._fallbacks.clear()


COUNTERS = Counters()
