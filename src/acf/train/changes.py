"""Changing the topology of one layer: blocks that change places, and blocks that go for good."""

from dataclasses import dataclass

import torch
from torch import Tensor

from acf.masks import plan_move, plan_pruning
from acf.nn import BlockSparseLayer
from acf.sparse import frobenius_norms, whole
from acf.train.inputs import InputSquares
from acf.train.optimizer_state import keep_optimizer_state, zero_optimizer_state
from acf.train.processes import sum_over_processes
from acf.train.scores import AbsentBlockScores


@dataclass(frozen=True)
class TopologyChange:
    """What happened to one layer at one step: blocks that moved, blocks it holds now, and blocks pruned for good."""

    step: int
    layer: str
    moved_blocks: int
    present_blocks: int
    pruned_blocks: int = 0


@torch.no_grad()
def magnitudes(layer: BlockSparseLayer, inputs: InputSquares | None) -> Tensor:
    """Score of every present block, float32 ``[nnz]``: its l2 norm, columns weighed by the inputs they meet."""
    weight = whole(layer.weight)
    if inputs is None or inputs.mean is None:
        return frobenius_norms(weight, dim=(1, 2))
    columns = inputs.mean.to(weight.device).sqrt().reshape(layer.layout.grid_cols, -1)[layer.block_cols.long()]
    return frobenius_norms(frobenius_norms(weight, dim=(1,)).mul_(columns), dim=(1,))


def move_blocks(
    layer: BlockSparseLayer,
    optimizer: torch.optim.Optimizer,
    scores: AbsentBlockScores,
    inputs: InputSquares | None,
    grown_at: Tensor,
    step: int,
) -> int | None:
    """Swap blocks as the policy says; how many moved, or None if the layer took no part in this step.

    ``grown_at [nnz]`` holds the step at which each block was regrown; that of blocks that come now is ``step``.
    """
    policy = scores.policy
    rows, cols, squares = scores.reduced()
    took_part = bool(squares.any()) if policy.grows_by_gradient else layer.weight.grad is not None
    if not took_part:
        return None
    safe = grown_at >= step - policy.grace_steps
    droppable = layer.present_blocks - int(safe.sum())
    count = min(policy.blocks_to_move(step, layer.present_blocks, squares.numel()), droppable)
    growth = policy.growth_scores(squares, scores.generator)
    present_rows = layer.block_rows if layer.balanced else None
    present_scores = magnitudes(layer, inputs).masked_fill(safe, torch.inf)
    move = plan_move(present_scores, growth, rows, cols, count, present_rows)
    layer.move_blocks(move)
    grown_at[move.slots] = step
    zero_optimizer_state(optimizer, layer.weight, move.slots)
    return move.slots.numel()


@torch.no_grad()
def prune_blocks(
    layer: BlockSparseLayer,
    optimizer: torch.optim.Optimizer,
    scores: AbsentBlockScores,
    inputs: InputSquares | None,
    grown_at: Tensor,
    step: int,
    kept: int,
) -> int | None:
    """Shrink a layer to ``kept`` blocks; how many of those were pruned and regrown, or None if it took no part.

    The blocks just pruned have gradients, so regrowth ranks by these, and what comes back keeps its weights.
    ``grown_at [nnz]`` shrinks with the layer.
    """
    gradient = layer.weight.grad
    if gradient is None:
        return None
    policy, old_shape = scores.policy, layer.weight.shape
    squares = sum_over_processes(frobenius_norms(gradient, dim=(1, 2)).square())
    regrown = policy.blocks_to_move(step, kept, layer.present_blocks - kept)
    rows = layer.block_rows if layer.balanced else None
    growth = policy.growth_scores(squares, scores.generator)
    slots = plan_pruning(magnitudes(layer, inputs), growth, kept, regrown, rows)
    layer.keep_blocks(slots)
    keep_optimizer_state(optimizer, layer.weight, old_shape, slots)
    grown_at.set_(grown_at[slots])  # type: ignore[call-overload]
    return regrown
