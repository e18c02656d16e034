"""What a backward pass is asked for: input statistics always, gradient norms of absent blocks before a move."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from acf.masks import Candidates, TopologyPolicy, copy_to_device, first_true
from acf.nn import BlockSparseLayer
from acf.ops import observe_weight_grad, stop_observing
from acf.ops.observe import WeightGradObserver
from acf.train.distributed import sum_over_processes


class LayerListener:
    """Hands the operands of every weight gradient of ``layer`` to ``observers``, until closed."""

    def __init__(self, layer: BlockSparseLayer, observers: Sequence[WeightGradObserver]) -> None:
        self.observers = observers
        self._identity = layer.identity
        self._identity.move_to(layer.block_rows.device)  # buffers that a checkpoint assigned may lie elsewhere
        observe_weight_grad(self._identity, self)

    def add(self, output_grad: Tensor, x: Tensor, *offsets: Tensor) -> None:
        """Hand on the operands of one backward pass."""
        for observer in self.observers:
            observer.add(output_grad, x, *offsets)

    def close(self) -> None:
        """Stop observing the layer."""
        stop_observing(self._identity)


class AbsentBlockScores:
    """Squared gradient norms of the absent blocks of a layer that may be grown at the next move.

    They are summed over the backward passes of the steps that count for the move, one by default. Where the layer runs
    once in one step, blocks are ranked by the exact gradient norm; where it runs several times, over several steps,
    with gradient accumulation or in several processes, by the root of the summed squares.
    """

    def __init__(self, layer: BlockSparseLayer, policy: TopologyPolicy, generator: torch.Generator) -> None:
        self.layer = layer
        self.policy = policy
        self.generator = generator
        self.is_scored = False  # whether a backward pass ran: known on the host, unlike the norms it added
        self._candidates: Candidates | None = None

    @property
    def squares(self) -> Tensor | None:
        """The sums so far, float32 ``[candidates]``; None before the first backward pass."""
        return None if self._candidates is None else self._candidates.gradient_squares

    @torch.no_grad()
    def add(self, output_grad: Tensor, x: Tensor, *offsets: Tensor) -> None:
        """Add one backward pass; norms that overflowed, in a pass that a loss scaler will skip, add nothing."""
        candidates = self.candidates()
        norms = self.layer.gradient_norms(output_grad, x, candidates.rows, candidates.cols, *offsets)
        candidates.gradient_squares.addcmul_(norms.nan_to_num_(0.0, 0.0, 0.0), norms)
        self.is_scored = True

    def candidates(self) -> Candidates:
        """The absent blocks that may be grown, in row-major order, listed when first needed."""
        if self._candidates is None:
            layout = self.layer.layout
            absent_count = layout.block_count - self.layer.present_blocks
            absent = first_true(~self.layer.mask().flatten(), absent_count).indices
            sample = self.policy.sample(absent_count, self.generator)
            if sample is not None:
                absent = absent[copy_to_device(sample, absent.device)]
            rows, cols = (absent // layout.grid_cols).int(), (absent % layout.grid_cols).int()
            squares = torch.zeros(absent.numel(), dtype=torch.float32, device=absent.device)
            self._candidates = Candidates(rows, cols, squares)
        return self._candidates

    def restore(self, squares: Tensor) -> None:
        """Continue from the sums of an interrupted run."""
        self.candidates().gradient_squares.copy_(squares)
        self.is_scored = True

    def reduced(self, process_group: Any = None) -> Candidates:
        """The candidates with squares summed over all processes, so that each of them plans the same move."""
        sum_over_processes(self.candidates().gradient_squares, process_group)
        return self.candidates()


class InputSquares:
    """Mean square of the input to every column of a layer's weight matrix: a running mean over steps.

    Inputs are observed where the weight gradient is computed. So evaluation does not count, compiled graphs stay valid,
    and a pass recomputed by activation checkpointing counts once. A replayed CUDA graph observes nothing: there the
    mean is over the steps that ran without one.
    """

    def __init__(self, layer: BlockSparseLayer, momentum: float) -> None:
        self.layer = layer
        self.momentum = momentum
        self.mean: Tensor | None = None
        self._sum: Tensor | None = None

    @torch.no_grad()
    def add(self, output_grad: Tensor, x: Tensor, *offsets: Tensor) -> None:
        """Add one backward pass; a pass that overflowed, and that a loss scaler will skip, adds nothing."""
        squares = torch.cat([self.layer.input_squares(x), x.new_ones(1, dtype=torch.float32)])
        finite = torch.isfinite(output_grad).all() & torch.isfinite(squares).all()
        self._sum = self.pending() + torch.where(finite, squares, 0.0)

    def pending(self) -> Tensor:
        """Sum over the passes of this step, and their number last: float32 ``[cols + 1]``."""
        if self._sum is None:
            return torch.zeros(self.layer.layout.cols + 1, device=self.layer.block_rows.device)
        return self._sum

    def fold(self, pending: Tensor) -> None:
        """Update the running mean with the sum of one step; a step without a pass changes nothing."""
        self._sum = None
        squares, passes = pending[:-1], pending[-1]
        step_mean = squares / passes.clamp(min=1.0)
        before = step_mean if self.mean is None else self.mean.to(step_mean.device)
        self.mean = torch.where(passes > 0, torch.lerp(step_mean, before, self.momentum), before)


def fold_inputs(inputs: Sequence[InputSquares], process_group: Any = None) -> None:
    """End a step: average over its passes and over all processes, which then hold the same means."""
    if not inputs:
        return
    parts = [each.pending() for each in inputs]
    total = sum_over_processes(torch.cat(parts), process_group)
    for each, pending in zip(inputs, torch.split(total, [part.numel() for part in parts]), strict=True):
        each.fold(pending)
