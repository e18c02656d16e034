"""One layer under a topology policy: what is gathered about it, and carrying out what Algorithm 1 plans for it."""

from typing import Any

import torch
from torch import Tensor

from acf.masks import (
    NEVER_REGROWN,
    Candidates,
    LayerState,
    Move,
    MoveSize,
    Shrink,
    TopologyPolicy,
    plan,
    plan_in_parts,
    plan_move,
)
from acf.nn import BlockSparseLayer
from acf.sparse import frobenius_norms, whole
from acf.train.changes import LayerChange
from acf.train.distributed import process_count, sum_over_processes
from acf.train.figures import LayerFigures
from acf.train.observers import AbsentBlockScores, InputSquares
from acf.train.optimizer_state import OptimizerState


class ControlledLayer:
    """A block-sparse layer and what a policy's plans for it are made from.

    ``grown_at`` int32 ``[nnz]``: the step at which each block was regrown. ``explored`` bool ``[grid_rows,
    grid_cols]``: blocks that were ever present. ``flip_rate``: fraction of the blocks that the last move replaced.
    ``scores`` exist from the first step that counts for the next move on, ``inputs`` for input-aware policies.
    """

    def __init__(self, layer: BlockSparseLayer, policy: TopologyPolicy, process_group: Any = None) -> None:
        self.layer = layer
        self.policy = policy
        self.process_group = process_group
        self.grown_at = torch.full_like(layer.block_rows, NEVER_REGROWN)
        self.explored = layer.mask()
        self.flip_rate = 0.0
        self.scores: AbsentBlockScores | None = None
        self.inputs = None if policy.input_momentum is None else InputSquares(layer, policy.input_momentum)

    @property
    def observers(self) -> list[InputSquares | AbsentBlockScores]:
        """Who needs the operands of the next weight gradient."""
        scores = self.scores if self.policy.grows_by_gradient else None
        return [observer for observer in (self.inputs, scores) if observer is not None]

    def figures(self, step: int, name: str) -> LayerFigures:
        """The live figures of this layer, called ``name``, after ``step``; waits for the device."""
        self.explore()
        return LayerFigures(step, name, self.layer.density, self.flip_rate, float(self.explored.float().mean()))

    def shrinks_at(self, step: int) -> bool:
        """Whether the layer holds fewer blocks after ``step``."""
        layer, parts = self.layer, 1 if self.layer.parts is None else self.layer.parts.count
        present, target, count = (
            x // parts for x in (layer.present_blocks, layer.target_blocks, layer.layout.block_count)
        )
        return self.policy.blocks_kept(step, present, target, count) < present

    def explore(self) -> None:
        """Count the present blocks as explored, in place, as CUDA graphs need it."""
        self.follow_device()
        self.explored.logical_or_(self.layer.mask())

    def follow_device(self) -> None:
        """Move what is remembered of every block to the device of the layer."""
        device = self.layer.block_rows.device
        self.grown_at, self.explored = self.grown_at.to(device), self.explored.to(device)

    @torch.no_grad()
    def change(self, state: OptimizerState, step: int) -> LayerChange | None:
        """Plan step 4 of Algorithm 1 and carry it out; None if the layer took no part in ``step``."""
        layer, present = self.layer, self.layer.present_blocks
        self.follow_device()
        candidates = self._present_candidates() if self.shrinks_at(step) else self.absent_candidates()
        if candidates is None:
            return None
        knowledge, parts = self.state(candidates), layer.parts
        planned = (
            plan(self.policy, knowledge, step) if parts is None else plan_in_parts(self.policy, knowledge, step, parts)
        )
        moved = self._shrink(planned, state) if isinstance(planned, Shrink) else self._move(planned, state, step)
        return LayerChange(moved, layer.present_blocks, present - layer.present_blocks)

    @torch.no_grad()
    def move(self, state: OptimizerState, size: MoveSize) -> LayerChange | None:
        """Plan and carry out a move whose size may be known on the device alone; None if the layer took no part."""
        candidates = self.absent_candidates()
        if candidates is None:
            return None
        planned = plan_move(self.policy, self.state(candidates), size)
        return LayerChange(self._move(planned, state, size.step), self.layer.present_blocks, 0)

    def state(self, candidates: Candidates) -> LayerState:
        """What a plan is made from."""
        layer, scores = self.layer, self.scores
        assert scores is not None  # there are no candidates without them
        return LayerState(
            rows=layer.block_rows,
            cols=layer.block_cols,
            magnitudes=self._magnitudes(),
            grown_at=self.grown_at,
            candidates=candidates,
            grid_shape=(layer.layout.grid_rows, layer.layout.grid_cols),
            target=layer.target_blocks,
            balanced=layer.balanced,
            generator=scores.generator,
        )

    def _move(self, move: Move, state: OptimizerState, step: int | Tensor) -> Tensor:
        """Carry out a move in weight, topology and optimizer state; the number of moved blocks, -1 if not scored."""
        dropped = self.layer.move_blocks(move)
        state.start_afresh(self.layer.weight, dropped)
        self.grown_at.copy_(torch.where(dropped, step, self.grown_at))  # masked_fill_ would read the step on the host
        return dropped.sum() if move.scored is None else torch.where(move.scored, dropped.sum(), -1)

    def _shrink(self, shrink: Shrink, state: OptimizerState) -> Tensor:
        """Carry out a shrink likewise; the number of blocks that were pruned and regrown."""
        layer, slots, old_count = self.layer, shrink.kept_slots, self.layer.present_blocks
        layer.keep_blocks(slots)
        state.keep(layer.weight, old_count, slots)
        self.grown_at = self.grown_at[slots]
        return torch.tensor(shrink.regrown, device=slots.device)

    def absent_candidates(self) -> Candidates | None:
        """Candidates of a move; None where it is known on the host that the layer took no part.

        One process may have run a layer that another did not: what they share is known on the device alone.
        """
        scores = self.scores
        if scores is None:
            return None
        if not self.policy.grows_by_gradient:
            return None if self.layer.weight.grad is None else scores.candidates()
        return (
            None
            if not scores.is_scored and process_count(self.process_group) == 1
            else scores.reduced(self.process_group)
        )

    def _present_candidates(self) -> Candidates | None:
        """Candidates of a shrink: what is pruned now has a gradient already; None where there is no gradient."""
        gradient = self.layer.weight.grad
        if gradient is None or self.scores is None:
            return None
        squares = sum_over_processes(frobenius_norms(whole(gradient), dim=(1, 2)).square(), self.process_group)
        return Candidates(self.layer.block_rows, self.layer.block_cols, squares)

    def _magnitudes(self) -> Tensor:
        """Score of every present block, float32 ``[nnz]``: its l2 norm, weighted by the inputs it meets."""
        weight = whole(self.layer.weight)
        if self.inputs is None or self.inputs.mean is None:
            return frobenius_norms(weight, dim=(1, 2))
        return self.layer.input_weighted_norms(weight, self.inputs.mean.to(weight.device))

    def state_dict(self) -> dict[str, Any]:
        """What was gathered, for a checkpoint; the topology itself is in the model's ``state_dict``."""
        self.explore()
        return {
            "explored": self.explored.clone(),
            "flip_rate": self.flip_rate,
            "grown_at": self.grown_at.clone(),
            "input_squares": None if self.inputs is None else self.inputs.mean,
            "growth_squares": None if self.scores is None else self.scores.squares,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from ``saved``, except for the scores, which follow when the next backward pass is set up."""
        device = self.layer.block_rows.device
        self.explored = saved["explored"].clone().to(device)
        self.flip_rate = float(saved["flip_rate"])
        self.grown_at = saved["grown_at"].clone().to(device)
        if self.inputs is not None and saved["input_squares"] is not None:
            self.inputs.mean = saved["input_squares"].clone().to(device)
        self.scores = None
