"""Choosing blocks by score: which stay, which go and which come, anywhere or in equal numbers per block row.

Ties fall to the lower index, so that every process that sees the same scores makes the same choice.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TopologyMove:
    """Slots to empty, and the blocks that take them: three int64 tensors of one length."""

    slots: Tensor
    new_rows: Tensor
    new_cols: Tensor


def plan_move(
    present_scores: Tensor,
    absent_scores: Tensor,
    absent_rows: Tensor,
    absent_cols: Tensor,
    count: int,
    present_rows: Tensor | None = None,
) -> TopologyMove:
    """Swap the ``count`` lowest of ``present_scores [nnz]`` for the highest of ``absent_scores [absent]``.

    With ``present_rows [nnz]`` every block row gives up as many blocks as it gains, rows take turns, and fewer than
    ``count`` move where rows have no more to swap. A block dropped now cannot come back in the same step: only
    blocks that were absent are candidates.
    """
    drop_groups = _one_group(present_scores) if present_rows is None else present_rows.long()
    grow_groups = _one_group(absent_scores) if present_rows is None else absent_rows.long()
    groups = int(max(_size(drop_groups), _size(grow_groups)))
    capacity = torch.bincount(drop_groups, minlength=groups)
    grown = _in_turns(absent_scores, grow_groups)
    grown = grown[_turn(absent_scores, grow_groups)[grown] < capacity[grow_groups[grown]]][:count]
    quota = torch.bincount(grow_groups[grown], minlength=groups)
    slots = _in_turns(-present_scores, drop_groups)
    slots = slots[_turn(-present_scores, drop_groups)[slots] < quota[drop_groups[slots]]]
    return TopologyMove(slots, absent_rows[grown].long(), absent_cols[grown].long())


def top_blocks(scores: Tensor, count: int, balanced: bool = False) -> Tensor:
    """The bool mask of the ``count`` highest of ``scores [grid_rows, grid_cols]``.

    ``balanced`` keeps the same number in every block row, within one.

    >>> top_blocks(torch.tensor([[4.0, 3.0], [2.0, 1.0]]), count=2, balanced=True).tolist()
    [[True, False], [True, False]]
    """
    flat = scores.flatten()
    rows = torch.arange(scores.numel(), device=scores.device) // scores.shape[1]
    mask = torch.zeros_like(flat, dtype=torch.bool)
    mask[_in_turns(flat, rows if balanced else _one_group(flat))[:count]] = True
    return mask.reshape(scores.shape)


def plan_pruning(
    present_scores: Tensor, growth_scores: Tensor, kept: int, regrown: int, rows: Tensor | None = None
) -> Tensor:
    """The slots that stay when ``kept`` of the present blocks do, ascending: int64 ``[kept]``.

    Step 4 of Algorithm 1 on one layer: all but the ``kept - regrown`` highest of ``present_scores [nnz]`` are pruned,
    then the ``regrown`` highest of ``growth_scores [nnz]`` among the pruned come back as they were. With
    ``rows [nnz]`` every block row ends with the same number, within one.
    """
    groups = _one_group(present_scores) if rows is None else rows.long()
    strong = _in_turns(present_scores, groups)[: kept - regrown]
    taken = torch.bincount(groups[strong], minlength=_size(groups))
    pruned = torch.ones_like(groups, dtype=torch.bool)
    pruned[strong] = False
    rest = torch.nonzero(pruned).flatten()
    back = _in_turns(growth_scores[rest], groups[rest], taken)[:regrown]
    return torch.cat([strong, rest[back]]).sort().values


def _one_group(scores: Tensor) -> Tensor:
    return torch.zeros(scores.numel(), dtype=torch.int64, device=scores.device)


def _size(groups: Tensor) -> int:
    return int(groups.max()) + 1 if groups.numel() else 0


def _turn(scores: Tensor, groups: Tensor) -> Tensor:
    """Place of every score among those of its group, the highest first: int64 from 0."""
    order = torch.sort(scores, descending=True, stable=True).indices
    order = order[torch.sort(groups[order], stable=True).indices]
    ranked = groups[order]
    places = torch.empty_like(order)
    places[order] = torch.arange(order.numel(), device=order.device) - torch.searchsorted(ranked, ranked)
    return places


def _in_turns(scores: Tensor, groups: Tensor, taken: Tensor | None = None) -> Tensor:
    """All indices in the order of choice: groups take turns, highest score first, in a turn and in a group.

    ``taken [groups]`` are turns that groups have had already.
    """
    order = torch.sort(scores, descending=True, stable=True).indices
    turns = _turn(scores, groups)
    if taken is not None:
        turns = turns + taken[groups]
    return order[torch.sort(turns[order], stable=True).indices]
