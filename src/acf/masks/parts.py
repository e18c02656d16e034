"""Planning for a layer whose grid of blocks is split over processes: every part moves its own blocks."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from acf.masks.algorithm1 import Candidates, LayerState, Move, Shrink, plan
from acf.masks.policy import TopologyPolicy


@dataclass(frozen=True)
class GridParts:
    """A grid of blocks cut into ``count`` equal parts along ``axis``: 0 for block rows, 1 for block columns.

    Each part holds the same number of blocks, in slots that follow each other.
    """

    axis: int
    count: int

    def part_shape(self, grid_shape: tuple[int, int]) -> tuple[int, int]:
        """Block rows and columns of one part."""
        rows, cols = grid_shape
        return (rows // self.count, cols) if self.axis == 0 else (rows, cols // self.count)

    def origin(self, part: int, grid_shape: tuple[int, int]) -> tuple[int, int]:
        """The first block row and column of a part."""
        first = part * self.part_shape(grid_shape)[self.axis]
        return (first, 0) if self.axis == 0 else (0, first)

    def part_of(self, rows: Tensor, cols: Tensor, grid_shape: tuple[int, int]) -> Tensor:
        """The part that each block lies in."""
        lines = rows if self.axis == 0 else cols
        return lines // self.part_shape(grid_shape)[self.axis]


def plan_in_parts(policy: TopologyPolicy, state: LayerState, step: int, parts: GridParts) -> Move | Shrink:
    """Step 4 of Algorithm 1 for every part by itself, with an equal share of the blocks and of the moves.

    So every process keeps as many blocks as any other, in memory and in time, and none changes hands.
    """
    size = state.rows.numel() // parts.count
    plans = [plan(policy, _part_state(state, parts, part, size), step) for part in range(parts.count)]
    shrinks = [each for each in plans if isinstance(each, Shrink)]
    if shrinks:
        slots = torch.cat([each.kept_slots + part * size for part, each in enumerate(shrinks)])
        return Shrink(slots, sum(each.regrown for each in shrinks))
    moves = [each for each in plans if isinstance(each, Move)]
    origins = [parts.origin(part, state.grid_shape) for part in range(parts.count)]
    scored = [each.scored for each in moves if each.scored is not None]
    return Move(
        slots=torch.cat([each.slots + part * size for part, each in enumerate(moves)]),
        new_rows=torch.cat([each.new_rows + row for each, (row, _) in zip(moves, origins, strict=True)]),
        new_cols=torch.cat([each.new_cols + col for each, (_, col) in zip(moves, origins, strict=True)]),
        taken=torch.cat([each.taken for each in moves if each.taken is not None]),
        scored=torch.stack(scored).any() if scored else None,
    )


def _part_state(state: LayerState, parts: GridParts, part: int, size: int) -> LayerState:
    """What one part knows of itself, in its own coordinates."""
    own = slice(part * size, (part + 1) * size)
    row, col = parts.origin(part, state.grid_shape)
    candidates = state.candidates
    inside = parts.part_of(candidates.rows, candidates.cols, state.grid_shape) == part
    return replace(
        state,
        rows=state.rows[own] - row,
        cols=state.cols[own] - col,
        magnitudes=state.magnitudes[own],
        grown_at=state.grown_at[own],
        candidates=Candidates(
            candidates.rows[inside] - row, candidates.cols[inside] - col, candidates.gradient_squares[inside]
        ),
        grid_shape=parts.part_shape(state.grid_shape),
        target=state.target // parts.count,
    )
