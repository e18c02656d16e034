"""Collecting the gradient norms of absent blocks during the one backward pass that needs them."""

import torch
from torch import Tensor

from acf.nn import BlockSparseLayer


class AbsentBlockScores:
    """Sums the squared gradient norms of a layer's absent blocks over the backward passes of one step.

    With one backward pass per step these rank blocks by the exact gradient norm; with gradient accumulation,
    or several processes, by the root of the summed squares of the parts.
    """

    def __init__(self, layer: BlockSparseLayer) -> None:
        self.layer = layer
        rows, cols = torch.nonzero(~layer.mask(), as_tuple=True)
        self.rows, self.cols = rows.int(), cols.int()
        self.squares = torch.zeros(rows.numel(), dtype=torch.float32, device=rows.device)
        layer.gradient_observer = self.add

    def add(self, output_grad: Tensor, x: Tensor) -> None:
        """Add one backward pass. A pass that overflowed (a loss scaler will skip it) adds nothing."""
        norms = self.layer.gradient_norms(output_grad, x, self.rows, self.cols)
        self.squares += torch.where(torch.isfinite(norms), norms, 0.0).square()

    def reduced(self) -> Tensor:
        """The sums over all processes, so that each of them makes the same choice: float32 ``[absent]``."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(self.squares)
        return self.squares

    def close(self) -> None:
        """Stop listening."""
        self.layer.gradient_observer = None
