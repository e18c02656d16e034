"""Algorithm 1 of the ACF proposal: block-structured dynamic sparse training. Here stands step 4, for one layer.

| the paper | here |
|---|---|
| 1-3. forward, backward, weight update on present blocks | the user's training loop over `acf.nn` layers |
| 4. if t is in {t_k} | `TopologyPolicy.moves_at` |
| 4a. block l2 norms of W | `LayerState.magnitudes` |
| 4b, 4c. threshold theta_t; prune the blocks below it | ``drop`` in `_move`; ``keep_strongest`` in `_shrink` |
| 4d. regrow the top k pruned blocks by gradient norm | ``grow`` in `_move`; ``keep_strongest`` in `_shrink` |

Step 4 as printed has two holes. First, pruning exactly a fraction s and then regrowing k blocks ends below s; here k
blocks more are pruned than the ratio asks for and k regrown, so the ratio holds exactly. Second, step 4d ranks
gradients of pruned blocks, which step 2 never computes; their norms are computed in the backward passes before t_k
only (`acf.train.observers`) and come in as `Candidates`.

A layer at its target *moves* blocks: it drops k present blocks and grows k absent ones (RigL with blocks). A layer
above its target, as one that starts dense, *shrinks*: what is pruned now may be regrown now, with its weights. `plan`
is pure: the controller, the layer and the optimizer state carry its result out. Planning a move never waits for the
device: the number of blocks comes from the schedule, and what depends on values is masked instead of cut.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from acf.masks.policy import TopologyPolicy
from acf.masks.selection import Selection, first_in_row_turns, first_in_turns, highest, keep_strongest

CANDIDATES_AT_ONCE = 1 << 12  # candidates written to a grid at a time, where memory is at its peak

NEVER_REGROWN = -(2**31)
"""Sentinel in `LayerState.grown_at`: this block was never regrown."""


@dataclass(frozen=True)
class Candidates:
    """Blocks that step 4d may regrow: int32 ``rows`` and ``cols``, float32 ``gradient_squares``, all ``[candidates]``.

    The squares are squared Frobenius norms of gradient blocks. In a move the candidates are absent blocks, all of them
    or a sample; in a shrink they are the present blocks, slot by slot.
    """

    rows: Tensor
    cols: Tensor
    gradient_squares: Tensor


@dataclass(frozen=True)
class LayerState:
    """What step 4 knows of a layer with ``nnz`` packed blocks in a grid of ``grid_shape`` (block rows, columns).

    ``rows``, ``cols`` int32 ``[nnz]``: the block in every slot. ``magnitudes`` float32 ``[nnz]``: its score, low goes
    first. ``grown_at`` int32 ``[nnz]``: the step at which it was regrown, or `NEVER_REGROWN`. ``target``: the number
    of blocks to end with. ``balanced``: every block row keeps its number of blocks. ``generator``: of all random
    choices, the same in every process (`TopologyPolicy.generator`).
    """

    rows: Tensor
    cols: Tensor
    magnitudes: Tensor
    grown_at: Tensor
    candidates: Candidates
    grid_shape: tuple[int, int]
    target: int
    balanced: bool
    generator: torch.Generator


@dataclass(frozen=True)
class Move:
    """``slots`` to empty and the blocks that take them, at ``(new_rows, new_cols)``: int64 ``[count]`` each.

    Where ``taken`` (bool ``[count]``) is False the slot keeps its block, and its own row and column stand in
    ``new_rows`` and ``new_cols``. ``scored`` (bool, one element) says whether any candidate had a gradient: if not,
    the layer took no part in the step, and nothing is taken. None means all True.
    """

    slots: Tensor
    new_rows: Tensor
    new_cols: Tensor
    taken: Tensor | None = None
    scored: Tensor | None = None

    def dropped(self, slot_count: int) -> Tensor:
        """Bool ``[slot_count]``: the slots whose block goes."""
        dropped = torch.zeros(slot_count, dtype=torch.bool, device=self.slots.device)
        dropped[self.slots] = torch.ones_like(self.slots, dtype=torch.bool) if self.taken is None else self.taken
        return dropped


@dataclass(frozen=True)
class Shrink:
    """``kept_slots`` int64 ``[kept]``, ascending, stay; ``regrown`` of them were pruned and came back at once."""

    kept_slots: Tensor
    regrown: int


def plan(policy: TopologyPolicy, state: LayerState, step: int) -> Move | Shrink:
    """Step 4 of Algorithm 1 for one layer after the weight update of ``step``; ``policy`` says how many and by what."""
    present, (grid_rows, grid_cols) = state.magnitudes.numel(), state.grid_shape
    growth = policy.growth_scores(state.candidates.gradient_squares, state.generator)
    kept = policy.blocks_kept(step, present, state.target, grid_rows * grid_cols)
    return _shrink(policy, state, step, kept, growth) if kept < present else _move(policy, state, step, growth)


def _shrink(policy: TopologyPolicy, state: LayerState, step: int, kept: int, growth: Tensor) -> Shrink:
    """Prune all but the ``kept - k`` blocks of greatest magnitude (4b, 4c); regrow the best k of the pruned (4d)."""
    regrown = policy.blocks_to_move(step, kept, state.magnitudes.numel() - kept)
    rows = state.rows if state.balanced else None
    return Shrink(keep_strongest(state.magnitudes, growth, kept, regrown, rows), regrown)


def _move(policy: TopologyPolicy, state: LayerState, step: int, growth: Tensor) -> Move:
    """Drop the k blocks of least magnitude (4b, 4c) and grow the k candidates of greatest score (4d).

    A block dropped now cannot come back now: only absent blocks are candidates. A block regrown less than the policy's
    grace ago is not dropped; fewer than k blocks move where too few are left.
    """
    present, grid_cols = state.magnitudes.numel(), state.grid_shape[1]
    count = min(policy.blocks_to_move(step, present, growth.numel()), present, growth.numel())
    droppable = state.grown_at < step - policy.grace_steps
    drop_scores = -state.magnitudes.masked_fill(~droppable, torch.inf)
    if state.balanced:
        grow, drop = _select_in_rows(state, growth, drop_scores, droppable, count)
    else:
        chosen = highest(growth, count)
        grow = Selection(_places(state, chosen), torch.ones_like(chosen, dtype=torch.bool))
        slots = highest(drop_scores, count)
        drop = Selection(slots, droppable[slots])
    taken, scored = grow.valid & drop.valid, None
    if policy.grows_by_gradient:
        scored = state.candidates.gradient_squares.any()
        taken = taken & scored
    own = state.rows[drop.indices].long() * grid_cols + state.cols[drop.indices]
    places = torch.where(taken, grow.indices, own)
    return Move(drop.indices, places // grid_cols, places % grid_cols, taken, scored)


def _select_in_rows(
    state: LayerState, growth: Tensor, drop_scores: Tensor, droppable: Tensor, count: int
) -> tuple[Selection, Selection]:
    """Places to grow and slots to drop in balance: every block row drops as many as it grows, and rows take turns.

    Fewer than ``count`` are valid where rows have no more to swap.
    """
    (grid_rows, grid_cols), rows = state.grid_shape, state.rows.long()
    scores = growth.new_full((grid_rows * grid_cols,), -torch.inf)
    for start in range(0, growth.numel(), CANDIDATES_AT_ONCE):
        chunk = slice(start, start + CANDIDATES_AT_ONCE)
        scores[_places(state, chunk)] = growth[chunk]
    none = torch.zeros(grid_rows, dtype=torch.int64, device=rows.device)
    capacity = none.index_add(0, rows, droppable.long())
    grow = first_in_row_turns(scores.reshape(grid_rows, grid_cols), capacity, count)
    quota = none.index_add(0, grow.indices // grid_cols, grow.valid.long())
    return grow, first_in_turns(drop_scores, rows, quota, count)


def _places(state: LayerState, candidates: Tensor | slice) -> Tensor:
    """Flat places in the grid, ``row * grid_cols + column``, of some of the candidates: int64."""
    return state.candidates.rows[candidates].long() * state.grid_shape[1] + state.candidates.cols[candidates]
