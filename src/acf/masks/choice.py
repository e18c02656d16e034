"""Choosing blocks by score: which stay, which go and which come, anywhere or in equal numbers per block row.

Ties fall to the lower index, so that every process that sees the same scores makes the same choice.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

SCORES_AT_ONCE = 1 << 14  # scores ranked at a time
ROWS_AT_ONCE = 16  # block rows whose absent blocks are ordered at a time


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
    if present_rows is None:
        grown = _highest(absent_scores, min(count, present_scores.numel()))
        slots = _highest(-present_scores, grown.numel())
    else:
        grown, slots = _plan_balanced(present_scores, present_rows.long(), absent_scores, absent_rows, count)
    return TopologyMove(slots, absent_rows[grown].long(), absent_cols[grown].long())


def _plan_balanced(
    present_scores: Tensor, present_rows: Tensor, absent_scores: Tensor, absent_rows: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Which absent blocks come and which slots they take, when every block row keeps its number."""
    groups = max(_size(present_rows), _size(absent_rows))
    capacity = torch.bincount(present_rows, minlength=groups)
    likely = _highest_of_rows(absent_scores, absent_rows, capacity)
    scores, rows = absent_scores[likely], absent_rows[likely].long()
    order = _in_turns(scores, rows)
    order = order[_turn(scores, rows)[order] < capacity[rows[order]]][:count]
    quota = torch.bincount(rows[order], minlength=groups)
    slots = _in_turns(-present_scores, present_rows)
    slots = slots[_turn(-present_scores, present_rows)[slots] < quota[present_rows[slots]]]
    return likely[order], slots


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


def _highest(scores: Tensor, count: int) -> Tensor:
    """Indices of the ``count`` highest scores in descending order, ties to the lower index: int64 ``[count]``.

    Only what is chosen is ordered, because this runs where memory is at its peak: the rest costs a copy of the
    scores and two masks, where sorting all of them would take several times their size.
    """
    if min(count, scores.numel()) < 1:
        return torch.empty(0, dtype=torch.int64, device=scores.device)
    scores = scores.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    least = _highest_values(scores, count)[-1]
    above = torch.nonzero(scores > least).flatten()
    ties = torch.nonzero(scores == least).flatten()[: count - above.numel()]
    return torch.cat([above[scores[above].sort(descending=True, stable=True).indices], ties])


def _highest_values(scores: Tensor, count: int) -> Tensor:
    """The ``count`` highest scores, descending, piece by piece: on a CPU top-k takes 16 bytes for every score."""
    best = scores[:0]
    for piece in torch.split(scores, SCORES_AT_ONCE):
        best = torch.cat([best, piece])
        best = best.topk(min(count, best.numel())).values
    return best


def _highest_of_rows(scores: Tensor, rows: Tensor, capacity: Tensor) -> Tensor:
    """Ascending indices of all scores that may be among the ``capacity[row]`` highest of their row, and few others.

    Done for a few block rows at a time: ordering all absent blocks would take several times the memory of their scores.
    """
    parts = [torch.empty(0, dtype=torch.int64, device=scores.device)]
    for first in range(0, capacity.numel(), ROWS_AT_ONCE):
        here = torch.nonzero((rows >= first) & (rows < first + ROWS_AT_ONCE)).flatten()
        row = rows[here].long()
        parts.append(here[_turn(scores[here], row) < capacity[row]])
    return torch.cat(parts).sort().values


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
