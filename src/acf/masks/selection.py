"""Selecting blocks by score, anywhere in a matrix or in equal numbers per block row.

Ties go to the lower index, so that every process that sees the same scores selects the same blocks. Sizes of results
depend on shapes alone, never on values: on a GPU no function here waits for the device, except `keep_strongest`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

SCORES_AT_ONCE = 1 << 12  # scores sorted at a time on a CPU
ROWS_AT_ONCE = 16  # block rows sorted at a time


class Selection(NamedTuple):
    """``indices`` int64 ``[count]`` of selected scores; where ``valid`` (bool ``[count]``) is False, of none."""

    indices: Tensor
    valid: Tensor


def top_blocks(scores: Tensor, count: int, balanced: bool = False) -> Tensor:
    """The bool mask of the ``count`` highest of ``scores [grid_rows, grid_cols]``.

    ``balanced`` keeps the same number in every block row, within one.

    >>> top_blocks(torch.tensor([[4.0, 3.0], [2.0, 1.0]]), count=2, balanced=True).tolist()
    [[True, False], [True, False]]
    """
    flat = scores.flatten()
    rows = torch.arange(scores.numel(), device=scores.device) // scores.shape[1]
    mask = torch.zeros_like(flat, dtype=torch.bool)
    mask[round_robin(flat, rows if balanced else torch.zeros_like(rows))[:count]] = True
    return mask.reshape(scores.shape)


def first_true(mask: Tensor, count: int) -> Selection:
    """Ascending indices of the first ``count`` true elements of ``mask [n]``; what is missing is not valid."""
    indices = torch.nonzero_static(mask, size=count, fill_value=-1).squeeze(1)
    return Selection(indices.clamp(min=0), indices >= 0)


def highest(scores: Tensor, count: int) -> Tensor:
    """Indices of the ``count`` highest of ``scores [n]`` in descending order, NaN as inf: int64 ``[min(count, n)]``.

    On a CPU chunk by chunk, because this runs where memory is at its peak: sorting takes several times what it sorts.
    """
    count = min(count, scores.numel())
    best = scores[:0]
    indices = torch.empty(0, dtype=torch.int64, device=scores.device)
    chunk_size = max(SCORES_AT_ONCE, count) if scores.device.type == "cpu" else max(1, scores.numel())
    for start in range(0, scores.numel(), chunk_size):
        chunk = scores[start : start + chunk_size].nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
        here = torch.arange(start, start + chunk.numel(), device=scores.device)
        contenders = torch.cat([best, chunk])
        order = contenders.sort(descending=True, stable=True).indices[:count]
        best, indices = contenders[order], torch.cat([indices, here])[order]
    return indices


def round_robin(scores: Tensor, groups: Tensor, turns_taken: Tensor | None = None) -> Tensor:
    """All indices of ``scores [n]`` in round-robin order over ``groups [n]``; within a group, by descending score.

    In a turn the group with the highest score comes first. ``turns_taken [group_count]`` are turns that groups have
    had already.
    """
    order = torch.sort(scores, descending=True, stable=True).indices
    turns = _rank_in_group(scores, groups)
    if turns_taken is not None:
        turns = turns + turns_taken[groups]
    return order[torch.sort(turns[order], stable=True).indices]


def _rank_in_group(scores: Tensor, groups: Tensor) -> Tensor:
    """Rank of every score within its group, 0 for the highest: int64 ``[n]``."""
    order = torch.sort(scores, descending=True, stable=True).indices
    order = order[torch.sort(groups[order], stable=True).indices]
    sorted_groups = groups[order]
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(order.numel(), device=order.device) - torch.searchsorted(sorted_groups, sorted_groups)
    return ranks


def first_in_turns(scores: Tensor, groups: Tensor, quota: Tensor, count: int) -> Selection:
    """The first ``count`` of ``scores [n]`` in round-robin order, no more than ``quota [group_count]`` of a group.

    Indices are distinct, those that are not valid included.
    """
    order = round_robin(scores, groups)
    beyond_quota = (_rank_in_group(scores, groups) >= quota[groups])[order]
    picked = torch.sort(beyond_quota.byte(), stable=True).indices[:count]
    return Selection(order[picked], ~beyond_quota[picked])


def first_in_row_turns(scores: Tensor, quota: Tensor, count: int) -> Selection:
    """`first_in_turns` over the rows of ``scores [grid_rows, grid_cols]``, as flat indices; -inf is never selected.

    Rows are sorted a few at a time, so this takes less memory than `first_in_turns`.
    """
    grid_cols = scores.shape[1]
    eligible = torch.cat([(rows != -torch.inf).sum(dim=1) for rows in torch.split(scores, ROWS_AT_ONCE)])
    depth = torch.minimum(quota, eligible)  # how many turns each row can take
    turns = torch.arange(grid_cols, device=scores.device)
    rows_in_turn = depth.numel() - torch.searchsorted(depth.sort().values, turns, right=True)
    after_turn = rows_in_turn.cumsum(0)  # [grid_cols]: selected once a turn is over
    full_turns = (after_turn <= count).sum()
    left = count - torch.where(turns < full_turns, after_turn, 0).amax()
    # The turn after the full ones goes to the rows that offer the highest scores.
    ranks, offers = torch.empty_like(scores, dtype=torch.int32), scores.new_empty(scores.shape[0])
    chunks = (torch.split(each, ROWS_AT_ONCE) for each in (scores, ranks, offers))
    for rows, row_ranks, row_offers in zip(*chunks, strict=True):
        order = rows.sort(dim=1, descending=True, stable=True).indices
        row_ranks.scatter_(1, order, turns.int().expand_as(rows))
        row_offers.copy_(rows.masked_fill(row_ranks != full_turns, -torch.inf).amax(dim=1))
    offers.masked_fill_(depth <= full_turns, -torch.inf)
    one_more = (_rank_in_group(offers, torch.zeros_like(depth)) < left) & (depth > full_turns)
    given = (torch.minimum(depth, full_turns) + one_more).int()  # of the type of ranks: promotion would copy them
    picked = first_true((ranks < given[:, None]).flatten(), count)
    order = scores.flatten()[picked.indices].sort(descending=True, stable=True).indices
    turn = ranks.flatten()[picked.indices].masked_fill(~picked.valid, grid_cols)
    order = order[turn[order].sort(stable=True).indices]
    return Selection(picked.indices[order], picked.valid[order])


def keep_strongest(scores: Tensor, growth_scores: Tensor, kept: int, regrown: int, groups: Tensor | None) -> Tensor:
    """Ascending indices of ``kept`` of ``scores [n]``: the strongest, and ``regrown`` of the others by growth score.

    With ``groups [n]`` every group ends with the same number, within one.
    """
    groups = torch.zeros_like(scores, dtype=torch.int64) if groups is None else groups.long()
    strongest = round_robin(scores, groups)[: kept - regrown]
    taken = torch.bincount(groups[strongest], minlength=int(groups.max()) + 1 if groups.numel() else 0)
    pruned = torch.ones_like(groups, dtype=torch.bool)
    pruned[strongest] = False
    rest = torch.nonzero(pruned).flatten()
    back = round_robin(growth_scores[rest], groups[rest], taken)[:regrown]
    return torch.cat([strongest, rest[back]]).sort().values
