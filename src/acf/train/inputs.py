"""Running mean squares of the inputs that reach a layer, for scores that weigh a weight by what it multiplies."""

from collections.abc import Sequence

import torch
from torch import Tensor

from acf.nn import BlockSparseLayer
from acf.train.processes import sum_over_processes


class InputSquares:
    """Mean square of the input to every column of a layer's weight matrix: a running mean over steps.

    The inputs of training passes are taken where the weight gradient is computed, so evaluation does not count,
    compiled graphs stay as they are, and a pass recomputed by activation checkpointing counts once. A replayed CUDA
    graph tells nothing, so there the mean is over the steps that ran without one.
    """

    def __init__(self, layer: BlockSparseLayer, momentum: float) -> None:
        self.layer = layer
        self.momentum = momentum
        self.mean: Tensor | None = None
        self._sum: Tensor | None = None

    @torch.no_grad()
    def add(self, output_grad: Tensor, x: Tensor) -> None:
        """Add one backward pass; a pass that overflowed, and that a loss scaler will skip, adds nothing."""
        squares = torch.cat([self.layer.input_squares(x), x.new_ones(1, dtype=torch.float32)])
        finite = torch.isfinite(output_grad).all() & torch.isfinite(squares).all()
        self._sum = self.pending() + torch.where(finite, squares, 0.0)

    def pending(self) -> Tensor:
        """Sum of the passes of this step and their number, float32 ``[cols + 1]``."""
        if self._sum is None:
            return torch.zeros(self.layer.layout.cols + 1, device=self.layer.block_rows.device)
        return self._sum

    def fold(self, pending: Tensor) -> None:
        """Take the step's sum into the running mean; a step without a pass changes nothing."""
        self._sum = None
        squares, passes = pending[:-1], pending[-1]
        step_mean = squares / passes.clamp(min=1.0)
        before = step_mean if self.mean is None else self.mean.to(step_mean.device)
        self.mean = torch.where(passes > 0, torch.lerp(step_mean, before, self.momentum), before)


def fold_inputs(inputs: Sequence[InputSquares]) -> None:
    """End a step: average over its passes and over all processes, which then hold the same means."""
    if not inputs:
        return
    parts = [each.pending() for each in inputs]
    total = sum_over_processes(torch.cat(parts))
    for each, pending in zip(inputs, torch.split(total, [part.numel() for part in parts]), strict=True):
        each.fold(pending)
