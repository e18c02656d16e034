"""What happened to the topology: numbers of moved blocks stay on the device until someone reads them."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class TopologyChange:
    """What happened to one layer at one step: blocks that moved, blocks it holds now, and blocks pruned for good."""

    step: int
    layer: str
    moved_blocks: int
    present_blocks: int
    pruned_blocks: int = 0


@dataclass(frozen=True)
class LayerChange:
    """The same of one layer while the device computes: ``moved_blocks`` is one int64, -1 if the layer took no part."""

    moved_blocks: Tensor
    present_blocks: int
    pruned_blocks: int


MOST_CHANGES = 100_000
"""Changes that are remembered: the latest."""

MOST_UNREAD_MOVES = 1_000
"""Moves whose numbers may wait on the device; beyond, appending reads them."""


class ChangeLog:
    """The latest changes, oldest first. Appending does not wait for the device, but for one move in a thousand."""

    def __init__(self) -> None:
        self._settled: deque[TopologyChange] = deque(maxlen=MOST_CHANGES)
        self._new: deque[TopologyChange] = deque(maxlen=MOST_CHANGES)
        self._pending: list[tuple[list[TopologyChange], Tensor]] = []

    def append(self, step: int, changes: Mapping[str, LayerChange]) -> None:
        """Note the changes of one step by layer name; one small tensor of all layers is kept."""
        if not changes:
            return
        unread = [
            TopologyChange(step, name, -1, change.present_blocks, change.pruned_blocks)
            for name, change in changes.items()
        ]
        counts = [change.moved_blocks for change in changes.values()]
        self._pending.append((unread, torch.stack([count.to(counts[0].device) for count in counts])))
        if len(self._pending) > MOST_UNREAD_MOVES:
            self._read()

    def settle(self) -> list[TopologyChange]:
        """Read what is pending, and return the changes that were added since the last call."""
        self._read()
        new, self._new = list(self._new), deque(maxlen=MOST_CHANGES)
        return new

    def _read(self) -> None:
        for unread, counts in self._pending:
            for change, moved in zip(unread, counts.tolist(), strict=True):
                if moved >= 0:
                    self._settled.append(replace(change, moved_blocks=moved))
                    self._new.append(self._settled[-1])
        self._pending = []

    @property
    def changes(self) -> list[TopologyChange]:
        """Every settled change that is remembered."""
        return list(self._settled)
