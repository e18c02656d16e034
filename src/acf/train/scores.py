"""Ranking absent blocks for growth, with gradient norms from the backward passes before a move."""

import torch
from torch import Tensor

from acf.masks import TopologyPolicy
from acf.nn import BlockSparseLayer
from acf.train.processes import sum_over_processes


class AbsentBlockScores:
    """The absent blocks of a layer that may be grown at the coming move, and what they score.

    Squared gradient norms are summed over the backward passes of the steps that count for the move, one by default.
    Where the layer runs once in one step these rank blocks by the exact gradient norm; where it runs several times,
    over several steps, with gradient accumulation or in several processes, by the root of the summed squares.
    """

    def __init__(self, layer: BlockSparseLayer, policy: TopologyPolicy, generator: torch.Generator) -> None:
        self.layer = layer
        self.policy = policy
        self.generator = generator
        self.rows: Tensor | None = None
        self.cols: Tensor | None = None
        self.squares: Tensor | None = None

    @torch.no_grad()
    def add(self, output_grad: Tensor, x: Tensor) -> None:
        """Add one backward pass; norms that overflowed, in a pass that a loss scaler will skip, add nothing."""
        rows, cols, squares = self.candidates()
        norms = self.layer.gradient_norms(output_grad, x, rows, cols)
        squares.addcmul_(norms.nan_to_num_(0.0, 0.0, 0.0), norms)

    def candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row, column and squares so far of every candidate, looked up when first needed."""
        if self.rows is None or self.cols is None or self.squares is None:
            absent = torch.nonzero(~self.layer.mask().flatten()).flatten()
            sample = self.policy.sample(absent.numel(), self.generator)
            if sample is not None:
                absent = absent[sample.to(absent.device)]
            grid_cols = self.layer.layout.grid_cols
            self.rows, self.cols = (absent // grid_cols).int(), (absent % grid_cols).int()
            self.squares = torch.zeros(absent.numel(), dtype=torch.float32, device=absent.device)
        return self.rows, self.cols, self.squares

    def restore(self, squares: Tensor) -> None:
        """Go on from the squares of an interrupted run."""
        self.candidates()[2].copy_(squares)

    def reduced(self) -> tuple[Tensor, Tensor, Tensor]:
        """The candidates with squares summed over all processes, so that each of them makes the same choice."""
        rows, cols, squares = self.candidates()
        return rows, cols, sum_over_processes(squares)
