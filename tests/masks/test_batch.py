"""Planning several layers at once selects what planning each of them alone selects, and indexes it alike."""

import pytest
import torch

from acf.masks import NEVER_REGROWN, SET, BlockDST, Candidates, LayerState, MoveSize, TopologyPolicy, plan_move
from acf.masks.batch import LayerBatch, LayerSize, plan_moves
from acf.sparse import BlockLayout, BlockTopology

GRIDS = [(4, 6, 0.25), (3, 3, 1.0), (2, 8, 0.5), (7, 5, 0.4)]


def layer(seed: int, rows: int, cols: int, density: float, scored: bool = True) -> tuple[BlockLayout, LayerState]:
    """A layer with ties among its scores, NaN among its magnitudes and a block that was regrown lately."""
    generator = torch.Generator().manual_seed(seed)
    layout = BlockLayout(rows, cols, 1, 1)
    present = round(density * rows * cols)
    order = torch.randperm(rows * cols, generator=generator)
    slots, absent = order[:present], order[present:].sort().values
    magnitudes = torch.randint(0, 4, (present,), generator=generator).float()
    magnitudes[0] = torch.nan
    squares = torch.randint(0, 3, (absent.numel(),), generator=generator).float() * scored
    grown_at = torch.full((present,), NEVER_REGROWN, dtype=torch.int32)
    grown_at[-1] = 9
    candidates = Candidates((absent // cols).int(), (absent % cols).int(), squares)
    state = LayerState(
        rows=(slots // cols).int(),
        cols=(slots % cols).int(),
        magnitudes=magnitudes,
        grown_at=grown_at,
        candidates=candidates,
        grid_shape=(rows, cols),
        target=present,
        balanced=False,
        generator=torch.Generator().manual_seed(seed),
    )
    return layout, state


def layers(scored: bool = True) -> list[tuple[BlockLayout, LayerState]]:
    return [layer(seed, *grid, scored or seed != 2) for seed, grid in enumerate(GRIDS)]


def batch_of(states: list[LayerState], capacity: int) -> LayerBatch:
    sizes = [
        LayerSize(
            *state.grid_shape,
            present=state.rows.numel(),
            candidates=state.candidates.rows.numel(),
            capacity=min(capacity, state.rows.numel(), state.candidates.rows.numel()),
        )
        for state in states
    ]
    return LayerBatch(sizes, torch.device("cpu"))


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize(
    "policy", [BlockDST(total_steps=100, every=10), BlockDST(total_steps=100, every=10, grace_moves=1),
               SET(total_steps=100, every=10)]
)  # fmt: skip
def test_a_batch_moves_the_blocks_that_each_layer_alone_would_move(policy: TopologyPolicy, scored: bool) -> None:
    alone, together = layers(scored), layers(scored)
    counts = [3, 0, 2, 4]
    batch = batch_of([state for _, state in together], capacity=5)
    moves = plan_moves(policy, batch, [state for _, state in together], torch.tensor(counts), step=10)
    topologies = batch.topologies(moves.places)
    dropped = moves.dropped.split(batch.slot_counts)
    for index, (layout, state) in enumerate(alone):
        size = MoveSize(batch.sizes[index].capacity, counts[index], 10)
        expected = plan_move(policy, state, size)
        rows, cols = state.rows.long(), state.cols.long()
        rows[expected.slots], cols[expected.slots] = expected.new_rows, expected.new_cols
        for ours, theirs in zip(topologies[index], BlockTopology.build(layout, rows, cols), strict=True):
            assert ours.dtype == theirs.dtype
            assert ours.tolist() == theirs.tolist()
        assert dropped[index].tolist() == expected.dropped(rows.numel()).tolist()
        took_part = expected.scored is None or bool(expected.scored)
        assert int(moves.moved[index]) == (int(dropped[index].sum()) if took_part else -1)
    assert int(moves.dropped.sum()) > 0


def test_the_absent_blocks_of_a_batch_are_those_of_each_layer_in_row_major_order() -> None:
    states = [state for _, state in layers()]
    batch = batch_of(states, capacity=2)
    places = batch.places(batch.slot_layers, [state.rows for state in states], [state.cols for state in states])
    for state, (rows, cols) in zip(states, batch.absent(places), strict=True):
        assert rows.tolist() == state.candidates.rows.tolist()
        assert cols.tolist() == state.candidates.cols.tolist()
