"""Step 4 of Algorithm 1 on one layer: which blocks go and come, anywhere or in equal numbers per block row."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from acf.masks import NEVER_REGROWN, Candidates, LayerState, Move, Shrink, TopologyPolicy, plan, top_blocks

few_scores = st.integers(0, 3).map(float)  # few values, so that ties are common
grids = st.tuples(st.integers(1, 6), st.integers(1, 6))
SIZE = 1 << 16


@dataclass(frozen=True)
class MoveExactly(TopologyPolicy):
    """Moves ``count`` blocks at any step and ranks candidates by their gradients."""

    count: int
    grace_steps: int = 0
    grows_by_gradient: bool = False
    kept: int | None = None

    def blocks_to_move(self, step: int, present: int, absent: int) -> int:
        return self.count

    def blocks_kept(self, step: int, present: int, target: int, block_count: int) -> int:
        return present if self.kept is None else self.kept


def scores_of(data: st.DataObject, size: int) -> Tensor:
    return torch.tensor(data.draw(st.lists(few_scores, min_size=size, max_size=size)))


def layer_state(present: Tensor, rows: Tensor, cols: Tensor, candidates: Candidates, **others) -> LayerState:
    never = torch.full(present.shape, NEVER_REGROWN, dtype=torch.int32)
    fields = {"grown_at": never, "grid_shape": (SIZE, SIZE), "target": present.numel(), "balanced": False}
    return LayerState(
        rows=rows.int(),
        cols=cols.int(),
        magnitudes=present,
        candidates=candidates,
        generator=torch.Generator(),
        **{**fields, **others},
    )


def planned(present: Tensor, absent: Tensor, policy: MoveExactly, **others) -> Move:
    """A plan where slot ``s`` holds block ``(0, s)`` and candidate ``c`` is block ``(c, 10 + 3 * c)``."""
    index = torch.arange(absent.numel(), dtype=torch.int32)
    candidates = Candidates(index, 10 + 3 * index, absent)
    slots = torch.arange(present.numel())
    move = plan(policy, layer_state(present, torch.zeros_like(slots), slots, candidates, **others), step=1)
    assert isinstance(move, Move)
    return move


@given(data=st.data())
def test_the_lowest_present_blocks_go_and_the_highest_absent_ones_come_ties_to_the_lower_index(data):
    present = data.draw(st.lists(few_scores, min_size=1, max_size=12))
    absent = data.draw(st.lists(few_scores, min_size=1, max_size=12))
    count = data.draw(st.integers(0, min(len(present), len(absent))))
    move = planned(torch.tensor(present), torch.tensor(absent), MoveExactly(count))
    lowest = sorted(range(len(present)), key=lambda index: (present[index], index))[:count]
    best = sorted(range(len(absent)), key=lambda index: (-absent[index], index))[:count]
    assert move.slots.tolist() == lowest
    assert move.new_rows.tolist() == best
    assert move.new_cols.tolist() == [10 + 3 * index for index in best]
    assert move.taken.all()


def test_a_move_of_many_equal_scores_takes_the_first_of_them():
    move = planned(torch.ones(5000), torch.ones(5000), MoveExactly(2000))
    assert move.slots.tolist() == list(range(2000))
    assert move.new_rows.tolist() == list(range(2000))
    assert {move.slots.dtype, move.new_rows.dtype, move.new_cols.dtype} == {torch.int64}


def test_scores_that_are_ranked_in_several_pieces_are_ranked_as_one():
    scores = torch.randint(0, 500, (20_000,), generator=torch.Generator().manual_seed(0)).float()
    values = scores.tolist()
    move = planned(scores, scores, MoveExactly(10_000))
    assert move.new_rows.tolist() == sorted(range(20_000), key=lambda index: (-values[index], index))[:10_000]
    assert move.slots.tolist() == sorted(range(20_000), key=lambda index: (values[index], index))[:10_000]


def test_blocks_whose_weights_or_gradients_are_not_numbers_leave_the_count_right():
    present = torch.tensor([1.0, torch.nan, 3.0, torch.nan])
    absent = torch.tensor([torch.nan, torch.inf, 2.0, torch.nan])
    move = planned(present, absent, MoveExactly(3))
    assert move.slots.tolist() == [1, 3, 0]  # what is broken goes first
    assert move.new_rows.tolist() == [0, 1, 3]


def test_a_protected_block_keeps_its_slot_and_its_place():
    grown_at = torch.tensor([4, NEVER_REGROWN, 4, NEVER_REGROWN], dtype=torch.int32)
    policy = MoveExactly(3, grace_steps=2)
    index = torch.arange(5, dtype=torch.int32)
    state = layer_state(
        torch.tensor([1.0, 2.0, 3.0, 4.0]),
        torch.zeros(4),
        torch.arange(4),
        Candidates(index, 10 + index, torch.arange(5.0)),
        grown_at=grown_at,
    )
    move = plan(policy, state, step=5)
    assert move.slots[move.taken].tolist() == [1, 3]
    assert move.new_rows[move.taken].tolist() == [4, 3]
    kept = move.slots[~move.taken]
    assert torch.equal(move.new_rows[~move.taken], state.rows[kept].long())
    assert torch.equal(move.new_cols[~move.taken], state.cols[kept].long())
    assert move.dropped(4).tolist() == [False, True, False, True]


@pytest.mark.parametrize(("gradients", "moves"), [([0.0, 0.0, 0.0], False), ([0.0, 1.0, 0.0], True)])
def test_a_layer_without_any_gradient_moves_nothing_where_gradients_rank(gradients, moves):
    policy = MoveExactly(2, grows_by_gradient=True)
    move = planned(torch.ones(4), torch.tensor(gradients), policy)
    assert bool(move.scored) is moves
    assert int(move.dropped(4).sum()) == (2 if moves else 0)
    assert moves or move.new_cols.tolist() == move.slots.tolist()


def balanced_state(mask: Tensor, present: Tensor, absent: Tensor, grown_at: Tensor | None = None) -> LayerState:
    rows, cols = torch.nonzero(mask, as_tuple=True)
    absent_rows, absent_cols = torch.nonzero(~mask, as_tuple=True)
    return layer_state(
        present,
        rows,
        cols,
        Candidates(absent_rows.int(), absent_cols.int(), absent),
        grid_shape=tuple(mask.shape),
        balanced=True,
        **({} if grown_at is None else {"grown_at": grown_at}),
    )


def carried_out(mask: Tensor, move: Move) -> Tensor:
    """The mask after a move of blocks whose slots are in row-major order."""
    rows, cols = torch.nonzero(mask, as_tuple=True)
    moved, slots = mask.clone(), move.slots[move.taken]
    moved[rows[slots], cols[slots]] = False
    moved[move.new_rows[move.taken], move.new_cols[move.taken]] = True
    return moved


@given(grid=grids, data=st.data())
def test_a_balanced_move_leaves_the_number_of_blocks_of_every_row_as_it_was(grid, data):
    mask = top_blocks(scores_of(data, grid[0] * grid[1]).reshape(grid), data.draw(st.integers(0, 36)), balanced=True)
    present, absent = scores_of(data, int(mask.sum())), scores_of(data, int((~mask).sum()))
    count = data.draw(st.integers(0, 36))
    move = plan(MoveExactly(count), balanced_state(mask, present, absent), step=1)
    moved = carried_out(mask, move)
    assert torch.equal(moved.sum(dim=1), mask.sum(dim=1))
    assert move.slots.unique().numel() == move.slots.numel()
    swappable = torch.minimum(mask.sum(dim=1), (~mask).sum(dim=1)).sum()
    assert int(move.taken.sum()) == int((moved & ~mask).sum()) == min(count, int(swappable))


@given(grid=grids, data=st.data())
def test_a_balanced_move_drops_no_protected_block(grid, data):
    mask = top_blocks(scores_of(data, grid[0] * grid[1]).reshape(grid), data.draw(st.integers(0, 36)), balanced=True)
    size = int(mask.sum())
    protected = torch.tensor(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=torch.bool)
    grown_at = torch.where(protected, 4, NEVER_REGROWN).int()
    state = balanced_state(mask, scores_of(data, size), scores_of(data, int((~mask).sum())), grown_at)
    move = plan(MoveExactly(data.draw(st.integers(0, 36)), grace_steps=2), state, step=5)
    assert not (move.dropped(size) & protected).any()
    assert torch.equal(carried_out(mask, move).sum(dim=1), mask.sum(dim=1))


def test_a_balanced_move_swaps_the_lowest_of_a_row_for_the_highest_absent_of_that_row():
    mask = torch.tensor([[True, True, False, False], [True, True, False, False]])
    present, absent = torch.tensor([1.0, 9.0, 8.0, 7.0]), torch.tensor([0.1, 0.2, 0.9, 0.8])
    move = plan(MoveExactly(1), balanced_state(mask, present, absent), step=1)
    assert (move.slots.tolist(), move.new_rows.tolist(), move.new_cols.tolist()) == ([3], [1], [2])
    both = plan(MoveExactly(2), balanced_state(mask, present, absent), step=1)
    assert sorted(both.slots.tolist()) == [0, 3]
    assert sorted(zip(both.new_rows.tolist(), both.new_cols.tolist(), strict=True)) == [(0, 3), (1, 2)]


def test_a_layer_above_its_target_shrinks_and_regrows_the_pruned_blocks_of_greatest_gradient():
    magnitude, gradient = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0]), torch.tensor([9.0, 0.0, 1.0, 0.0, 2.0])
    slots = torch.arange(5, dtype=torch.int32)
    state = layer_state(magnitude, slots * 0, slots, Candidates(slots * 0, slots, gradient), target=3)
    shrink = plan(MoveExactly(1, kept=3), state, step=1)
    assert isinstance(shrink, Shrink)
    assert (shrink.kept_slots.tolist(), shrink.regrown) == ([0, 1, 4], 1)
