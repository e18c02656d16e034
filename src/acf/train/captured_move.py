"""Scoring and moving blocks inside a CUDA graph, with the numbers that differ from move to move on the device."""

import torch

from acf.masks import TopologyPolicy, copy_to_device
from acf.train.batched_moves import BatchedMoves
from acf.train.changes import LayerChange
from acf.train.optimizer_state import OptimizerState


class CapturedMove:
    """The moves of all layers as one stretch of a graph: `record` while it is captured, `prepare` before every replay.

    A graph replays the same kernels on the same addresses, so the number of blocks that move and the step are
    tensors of one element, and every layer selects as many blocks as its largest move needs.
    """

    def __init__(self, moves: BatchedMoves, policy: TopologyPolicy, state: OptimizerState) -> None:
        self.moves = moves
        self.policy = policy
        self.state = state
        self._batches = moves.prepare()  # kept as long as the graph that reads them
        device = next(iter(moves.controlled.values())).layer.block_rows.device
        self._step = torch.zeros((), dtype=torch.int32, device=device)
        self._counts = torch.zeros(len(moves.controlled), dtype=torch.int64, device=device)
        self._recorded: dict[str, LayerChange] = {}

    def record(self) -> None:
        """Move blocks after the optimizer step that is being captured, and count them as explored."""
        self._recorded = self.moves.record(self.state, self._counts, self._step)

    def prepare(self, step: int) -> None:
        """Set the sizes of the move after ``step``, without waiting for the device."""
        layers = [each.layer for each in self.moves.controlled.values()]
        present = [(layer.present_blocks, layer.layout.block_count - layer.present_blocks) for layer in layers]
        counts = torch.tensor([self.policy.blocks_to_move(step, *each) for each in present])
        self._counts.copy_(copy_to_device(counts, self._counts.device))
        self._step.fill_(step)

    def changes(self) -> dict[str, LayerChange]:
        """What the last replay did, by layer; the next replay does not change it."""
        if not self._recorded:
            return {}
        moved = torch.stack([change.moved_blocks for change in self._recorded.values()]).unbind()
        return {
            name: LayerChange(count, change.present_blocks, 0)
            for (name, change), count in zip(self._recorded.items(), moved, strict=True)
        }
