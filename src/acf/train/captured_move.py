"""Scoring and moving blocks inside a CUDA graph, with the numbers that differ from move to move on the device."""

from collections.abc import Mapping

import torch
from torch import Tensor

from acf.masks import MoveSize, TopologyPolicy
from acf.train.changes import LayerChange
from acf.train.controlled_layer import ControlledLayer
from acf.train.optimizer_state import OptimizerState


class CapturedMove:
    """The moves of all layers as one stretch of a graph: `record` while it is captured, `prepare` before every replay.

    A graph replays the same kernels on the same addresses, so the number of blocks that move and the step are
    tensors of one element, and every layer selects as many blocks as its largest move needs.
    """

    def __init__(
        self, controlled: Mapping[str, ControlledLayer], policy: TopologyPolicy, state: OptimizerState
    ) -> None:
        self.controlled = controlled
        self.policy = policy
        self.state = state
        device = next(iter(controlled.values())).layer.block_rows.device
        self._step = torch.zeros((), dtype=torch.int32, device=device)
        self._counts = torch.zeros(len(controlled), dtype=torch.int64, device=device)
        self._recorded: dict[str, LayerChange] = {}

    def record(self) -> None:
        """Move blocks after the optimizer step that is being captured, and count them as explored."""
        for index, (name, each) in enumerate(self.controlled.items()):
            capacity = self.policy.most_blocks_to_move(*_present_and_absent(each))
            change = each.move(self.state, MoveSize(capacity, self._counts[index], self._step))
            if change is not None:
                self._recorded[name] = change
            each.explore()

    def prepare(self, step: int) -> None:
        """Set the sizes of the move after ``step``, without waiting for the device."""
        counts = [self.policy.blocks_to_move(step, *_present_and_absent(each)) for each in self.controlled.values()]
        self._counts.copy_(_pinned(torch.tensor(counts), self._counts), non_blocking=True)
        self._step.fill_(step)

    def changes(self) -> dict[str, LayerChange]:
        """What the last replay did, by layer; the next replay does not change it."""
        return {
            name: LayerChange(change.moved_blocks.clone(), change.present_blocks, 0)
            for name, change in self._recorded.items()
        }


def _present_and_absent(each: ControlledLayer) -> tuple[int, int]:
    present = each.layer.present_blocks
    return present, each.layer.layout.block_count - present


def _pinned(values: Tensor, like: Tensor) -> Tensor:
    """``values`` in memory from which a GPU copies on its own."""
    return values.pin_memory() if like.is_cuda else values
