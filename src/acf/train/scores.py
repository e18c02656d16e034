"""Collecting the gradient norms of absent blocks during the one backward pass that needs them."""

import torch
from torch import Tensor

from acf.nn import BlockSparseLayer
from acf.ops import observe_weight_grad, stop_observing


class AbsentBlockScores:
    """Sums the squared gradient norms of a layer's absent blocks over the backward passes of one step.

    Where the layer runs once per step these rank blocks by the exact gradient norm; where it runs several times, with
    gradient accumulation, or in several processes, by the root of the summed squares of the parts.
    """

    def __init__(self, layer: BlockSparseLayer) -> None:
        self.layer = layer
        self.observed = layer.block_rows
        self.rows: Tensor | None = None
        self.cols: Tensor | None = None
        self.squares: Tensor | None = None
        observe_weight_grad(self.observed, self)

    @torch.no_grad()
    def add(self, output_grad: Tensor, x: Tensor) -> None:
        """Add one backward pass; norms that overflowed, in a pass that a loss scaler will skip, add nothing."""
        rows, cols, squares = self.candidates()
        norms = self.layer.gradient_norms(output_grad, x, rows, cols)
        squares += torch.where(torch.isfinite(norms), norms, 0.0).square()

    def candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row, column and score so far of every absent block, looked up when first needed."""
        if self.rows is None or self.cols is None or self.squares is None:
            rows, cols = torch.nonzero(~self.layer.mask(), as_tuple=True)
            self.rows, self.cols = rows.int(), cols.int()
            self.squares = torch.zeros(rows.numel(), dtype=torch.float32, device=rows.device)
        return self.rows, self.cols, self.squares

    def reduced(self) -> tuple[Tensor, Tensor, Tensor]:
        """The candidates with scores summed over all processes, so that each of them makes the same choice."""
        rows, cols, squares = self.candidates()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(squares)
        return rows, cols, squares

    def close(self) -> None:
        """Stop listening."""
        stop_observing(self.observed)
