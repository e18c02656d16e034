"""What a backward pass is asked for: input statistics always, gradient norms of absent blocks before a move."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from acf.masks import Candidates, TopologyPolicy, copy_to_device, first_true
from acf.nn import BlockSparseLayer
from acf.ops import observe_weight_grad, stop_observing
from acf.train.distributed import sum_over_processes


class LayerListener:
    """Hands the operands of every weight gradient of ``layer`` to ``observers``, until closed.

    With ``probed``, compiled graphs of the layer score its blocks as well, for passes that are replayed: such a pass
    calls no observer, and leaves its scores as the gradient of a probe, which `collect` adds to ``probed``.
    """

    def __init__(
        self,
        layer: BlockSparseLayer,
        observers: "Sequence[InputSquares | AbsentBlockScores]",
        probed: "AbsentBlockScores | None" = None,
    ) -> None:
        self.observers = observers
        self._probed = probed
        self._identity = layer.identity
        self._identity.move_to(layer.block_rows.device)  # buffers that a checkpoint assigned may lie elsewhere
        self._was_called = False
        if probed is not None:
            grid = layer.layout.grid_rows, layer.layout.grid_cols
            self._identity.probe = torch.zeros(grid, device=layer.block_rows.device, requires_grad=True)
        observe_weight_grad(self._identity, self)

    def add(self, output_grad: Tensor, x: Tensor, *offsets: Tensor) -> None:
        """Hand on the operands of one backward pass."""
        self._was_called = True
        for observer in self.observers:
            observer.add(output_grad, x, *offsets)

    def reserve(self) -> None:
        """Allocate now what observers keep, so that a pass allocates nothing that outlives it.

        ``torch.compile(mode="reduce-overhead")`` runs a new graph once in its own memory pool, with observers called,
        and refuses to go on where tensors other than its outputs stay there.
        """
        for observer in self.observers:
            observer.reserve()

    def collect(self) -> None:
        """Take what replayed passes have left; where passes called the observers, these know it already."""
        probe = self._identity.probe
        if self._probed is not None and probe is not None and probe.grad is not None and not self._was_called:
            self._probed.add_squares(probe.grad)

    def close(self) -> None:
        """Stop observing the layer."""
        stop_observing(self._identity)
        self._identity.probe = None


class AbsentBlockScores:
    """Squared gradient norms of the absent blocks of a layer that may be grown at the next move.

    They are summed over the backward passes of the steps that count for the move, one by default. Where the layer runs
    once in one step, blocks are ranked by the exact gradient norm; where it runs several times, over several steps,
    with gradient accumulation or in several processes, by the root of the summed squares.
    """

    def __init__(
        self,
        layer: BlockSparseLayer,
        policy: TopologyPolicy,
        generator: torch.Generator,
        list_absent: Callable[[], None] = lambda: None,
    ) -> None:
        self.layer = layer
        self.policy = policy
        self.generator = generator
        self._list_absent = list_absent
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

    def reserve(self) -> None:
        """List the candidates and allocate their sums."""
        self.candidates()

    @torch.no_grad()
    def add_squares(self, squares: Tensor) -> None:
        """Add squared norms of all blocks, ``[grid_rows, grid_cols]``, of which those of the candidates count."""
        candidates = self.candidates()
        candidates.gradient_squares.add_(squares[candidates.rows.long(), candidates.cols.long()])
        self.is_scored = True

    def candidates(self) -> Candidates:
        """The absent blocks that may be grown, in row-major order, listed when first needed.

        ``list_absent`` may list those of many layers together, by calling `offer`.
        """
        if self._candidates is None:
            self._list_absent()
        if self._candidates is None:
            layout = self.layer.layout
            absent_count = layout.block_count - self.layer.present_blocks
            absent = first_true(~self.layer.mask().flatten(), absent_count).indices
            self.offer((absent // layout.grid_cols).int(), (absent % layout.grid_cols).int())
        assert self._candidates is not None
        return self._candidates

    @property
    def has_candidates(self) -> bool:
        """Whether the absent blocks are listed."""
        return self._candidates is not None

    def offer(self, rows: Tensor, cols: Tensor) -> None:
        """Take the absent blocks at ``(rows, cols)``, int32 in row-major order, or a sample of them, as candidates."""
        sample = self.policy.sample(rows.numel(), self.generator)
        if sample is not None:
            sample = copy_to_device(sample, rows.device)
            rows, cols = rows[sample], cols[sample]
        squares = torch.zeros(rows.numel(), dtype=torch.float32, device=rows.device)
        self._candidates = Candidates(rows, cols, squares)

    def restore(self, squares: Tensor) -> None:
        """Continue from the sums of an interrupted run."""
        self.candidates().gradient_squares.copy_(squares)
        self.is_scored = True

    def reduced(self, process_group: Any = None) -> Candidates:
        """The candidates with squares summed over all processes, so that each of them plans the same move."""
        sum_over_processes(self.candidates().gradient_squares, process_group)
        return self.candidates()


class InputSquares:
    """Mean square of every input of a layer's weight matrix, a running mean over steps: see `input_squares`.

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
        self.reserve()
        assert self._sum is not None
        self._sum.add_(torch.where(finite, squares, 0.0))

    def reserve(self) -> None:
        """Allocate the sum over the passes of this step."""
        self._sum = self.pending()

    def pending(self) -> Tensor:
        """Sum over the passes of this step, and their number last: float32 ``[inputs + 1]``."""
        if self._sum is None:
            return torch.zeros(self.layer.input_count + 1, device=self.layer.block_rows.device)
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
