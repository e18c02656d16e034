"""Step 4 of Algorithm 1 for several layers at once: a few launches on a GPU instead of dozens for every layer.

The grids of all layers lie end to end, and so do their slots and candidates: one sort by score and one by layer ranks
the blocks of every layer. Sizes depend on shapes alone, so nothing here waits for the device, and the index tensors of
a `LayerBatch` are made once. Selects what `plan_move` selects for one layer, ties included.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from acf.masks.algorithm1 import LayerState
from acf.masks.policy import TopologyPolicy, copy_to_device
from acf.masks.selection import first_true
from acf.sparse import BlockTopology

BLOCKS_AT_ONCE = 1 << 15
"""Blocks of the grids of a batch, at most: sorting takes several times what it sorts, where memory is at its peak."""


@dataclass(frozen=True)
class LayerSize:
    """What of a layer decides the sizes of all tensors: its grid, its blocks, and how many may move at most."""

    grid_rows: int
    grid_cols: int
    present: int
    candidates: int
    capacity: int

    @property
    def block_count(self) -> int:
        """Blocks of the grid, present and absent."""
        return self.grid_rows * self.grid_cols


class LayerBatch:
    """Layers whose blocks are listed, selected and indexed together.

    A *place* is ``row * grid_cols + column`` plus the blocks of the grids before it: an int64 that names a block of
    any layer. Slots and candidates are numbered over all layers likewise.
    """

    def __init__(self, sizes: Sequence[LayerSize], device: torch.device) -> None:
        self.sizes = tuple(sizes)
        self.device = device
        self.slot_counts = [size.present for size in sizes]
        self.candidate_counts = [size.candidates for size in sizes]
        self.grid_counts = [size.block_count for size in sizes]
        self._row_counts = [size.grid_rows + 1 for size in sizes]
        self._col_counts = [size.grid_cols + 1 for size in sizes]
        grid_starts, first_slots = _starts(self.grid_counts), _starts(self.slot_counts)
        rows, cols = [size.grid_rows for size in sizes], [size.grid_cols for size in sizes]
        capacities = [size.capacity for size in sizes]
        self.slot_layers = self._layers(self.slot_counts)
        self.candidate_layers = self._layers(self.candidate_counts)
        self.move_layers = self._layers(capacities)
        self.move_ranks = self._ranges(capacities, [0] * len(sizes))
        self.grow_picks = self._ranges(capacities, _starts(self.candidate_counts))
        self.drop_picks = self._ranges(capacities, first_slots)
        self._grid_rows, self._grid_cols = self._to_device(rows), self._to_device(cols)
        self._grid_starts, self._first_slots = self._to_device(grid_starts), self._to_device(first_slots)
        self._row_bounds = self._ranges(self._row_counts, grid_starts, cols)
        self._col_bounds = self._ranges(self._col_counts, grid_starts, rows)
        self._row_layers, self._col_layers = self._layers(self._row_counts), self._layers(self._col_counts)

    def places(self, layers: Tensor, rows: Sequence[Tensor], cols: Sequence[Tensor]) -> Tensor:
        """The places of the blocks at ``(rows, cols)``, one pair per layer; ``layers``: that of every block."""
        within = torch.cat(list(rows)).long() * self._grid_cols[layers] + torch.cat(list(cols))
        return within + self._grid_starts[layers]

    def mask(self, places: Tensor) -> Tensor:
        """Bool over all grids: the blocks at ``places``."""
        mask = torch.zeros(sum(self.grid_counts), dtype=torch.bool, device=self.device)
        return mask.scatter_(0, places, True)

    def coordinates(self, layers: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and columns of the blocks at ``places``, int64."""
        within, cols = places - self._grid_starts[layers], self._grid_cols[layers]
        return within // cols, within % cols

    def absent(self, places: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Rows and columns of the blocks that are not at ``places``, layer by layer in row-major order: int32.

        The batch must be one whose candidates are all absent blocks.
        """
        found = first_true(~self.mask(places), sum(self.candidate_counts)).indices
        rows, cols = self.coordinates(self.candidate_layers, found)
        parts = [torch.split(each.int(), self.candidate_counts) for each in (rows, cols)]
        return list(zip(*parts, strict=True))

    def topologies(self, places: Tensor) -> list[BlockTopology]:
        """`BlockTopology.unchecked` of every layer, whose slots hold the blocks at ``places``: parts of six tensors."""
        layers = self.slot_layers
        rows, cols = self.coordinates(layers, places)
        by_row = torch.sort(places)
        by_col = torch.sort(self._grid_starts[layers] + cols * self._grid_rows[layers] + rows)
        first = self._first_slots
        row_offsets = torch.searchsorted(by_row.values, self._row_bounds) - first[self._row_layers]
        col_offsets = torch.searchsorted(by_col.values, self._col_bounds) - first[self._col_layers]
        parts = (
            torch.split(rows.int(), self.slot_counts),
            torch.split(cols.int(), self.slot_counts),
            torch.split(row_offsets.int(), self._row_counts),
            torch.split((by_row.indices - first[layers]).int(), self.slot_counts),
            torch.split(col_offsets.int(), self._col_counts),
            torch.split((by_col.indices - first[layers]).int(), self.slot_counts),
        )
        return [BlockTopology(*indices) for indices in zip(*parts, strict=True)]

    def sums(self, layers: Tensor, flags: Tensor) -> Tensor:
        """How many of the bool ``flags`` are true in every layer: int64 ``[layers]``."""
        none = torch.zeros(len(self.sizes), dtype=torch.int64, device=self.device)
        return none.index_add_(0, layers, flags.long())

    def _to_device(self, values: Sequence[int]) -> Tensor:
        return copy_to_device(torch.tensor(values, dtype=torch.int64), self.device)

    def _layers(self, counts: Sequence[int]) -> Tensor:
        """The index of the layer, ``counts`` times each."""
        each = [torch.full((count,), index) for index, count in enumerate(counts)]
        return copy_to_device(torch.cat(each), self.device)

    def _ranges(self, counts: Sequence[int], starts: Sequence[int], steps: Sequence[int] | None = None) -> Tensor:
        """``start, start + step, ...`` of every layer, ``counts`` values each."""
        each = zip(counts, starts, steps or [1] * len(counts), strict=True)
        ranges = [start + step * torch.arange(count) for count, start, step in each]
        return copy_to_device(torch.cat(ranges), self.device)


@dataclass(frozen=True)
class BatchedMove:
    """The moves of all layers of a batch.

    ``places`` int64 and ``dropped`` bool, both over all slots: the block in every slot after the move, and whether it
    is a new one. ``moved`` int64 ``[layers]``: the number of new blocks, -1 where no candidate of the layer was scored.
    """

    places: Tensor
    dropped: Tensor
    moved: Tensor


def plan_moves(
    policy: TopologyPolicy, batch: LayerBatch, states: Sequence[LayerState], counts: Tensor, step: int | Tensor
) -> BatchedMove:
    """`plan_move` for every layer of ``batch``; ``counts`` int64 ``[layers]``: how many blocks move in each."""
    squares = torch.cat([state.candidates.gradient_squares for state in states])
    growth = torch.cat([policy.growth_scores(state.candidates.gradient_squares, state.generator) for state in states])
    droppable = torch.cat([state.grown_at for state in states]) < step - policy.grace_steps
    drop_scores = -torch.cat([state.magnitudes for state in states]).masked_fill(~droppable, torch.inf)
    slots = _descending(drop_scores, batch.slot_layers)[batch.drop_picks]
    grown = _descending(growth, batch.candidate_layers)[batch.grow_picks]
    taken = (batch.move_ranks < counts[batch.move_layers]) & droppable[slots]
    scored = batch.sums(batch.candidate_layers, squares != 0) > 0 if policy.grows_by_gradient else None
    if scored is not None:
        taken = taken & scored[batch.move_layers]
    candidates = [state.candidates for state in states]
    absent = batch.places(
        batch.candidate_layers, [each.rows for each in candidates], [each.cols for each in candidates]
    )
    places = batch.places(batch.slot_layers, [state.rows for state in states], [state.cols for state in states])
    places = places.scatter(0, slots, torch.where(taken, absent[grown], places[slots]))
    dropped = torch.zeros_like(places, dtype=torch.bool).scatter_(0, slots, taken)
    moved = batch.sums(batch.move_layers, taken)
    return BatchedMove(places, dropped, moved if scored is None else torch.where(scored, moved, -1))


def _descending(scores: Tensor, layers: Tensor) -> Tensor:
    """Indices of ``scores`` layer by layer, in each by descending score, NaN as inf; ties go to the lower index."""
    scores = scores.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    order = torch.sort(scores, descending=True, stable=True).indices
    return order[torch.sort(layers[order], stable=True).indices]


def _starts(counts: Sequence[int]) -> list[int]:
    return [0, *accumulate(counts)][: len(counts)]
