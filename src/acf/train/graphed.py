"""A training step as a CUDA graph, replayed without the host; a second graph scores and moves blocks."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from acf.errors import TopologyError
from acf.train.captured_move import CapturedMove
from acf.train.controller import TopologyController
from acf.train.optimizers import Optimizer, listed

EAGER_STEPS = 3
"""Steps that run before the capture, so that optimizer state exists and every kernel is compiled and tuned."""


class GraphedStep:
    """Forward, loss, backward and optimizer step, captured and replayed; steps that move blocks have a second graph.

    ``loss_fn(*batch)`` returns the loss; it may call a `torch.compile`d model. ``optimizer`` may be a list, which steps
    in that order. The first steps run eagerly and train
    like any other; one of them scores absent blocks without effect, so that the first move finds its kernels tuned.
    Batches must keep shape, dtype and device, and learning rates must be tensors (``lr=torch.tensor(0.1)``), or the
    graph would keep the rate of the moment it was captured. On a CPU every step is eager.

    Blocks move by writing weights and indices in place, so captured graphs stay valid. Where a policy needs the host
    (random growth, a dense start that shrinks, several processes), the steps that score and move run eagerly.

    A call returns the loss as a tensor that the next call overwrites.
    """

    def __init__(
        self,
        loss_fn: Callable[..., Tensor],
        optimizer: Optimizer | Sequence[Optimizer],
        topology: TopologyController | None = None,
    ) -> None:
        self.loss_fn = loss_fn
        self.optimizers = listed(optimizer)
        self.topology = topology
        self.eager_steps = 0
        self._plain: _Capture | None = None
        self._moving: _Capture | None = None

    def __call__(self, *batch: Tensor) -> Tensor:
        """Train on one batch; the loss, detached."""
        if not batch[0].is_cuda or self.eager_steps < EAGER_STEPS:
            return self._run_eagerly(batch)
        if self.topology is not None and self.topology.scores_next:
            return self._move(batch)
        if self._plain is None:
            self._plain = self._capture(batch, None)
        loss = self._plain.replay(batch)
        if self.topology is not None:
            self.topology.count_step()
        return loss

    def _run_eagerly(self, batch: tuple[Tensor, ...]) -> Tensor:
        self.eager_steps += 1
        if self.topology is not None and self.eager_steps == EAGER_STEPS and not self.topology.scores_next:
            self.topology.rehearse()
        self._zero_grad()
        loss = self._train(batch)
        return loss.detach()

    def _move(self, batch: tuple[Tensor, ...]) -> Tensor:
        """A step that scores absent blocks and moves some, from its graph where the policy allows one."""
        assert self.topology is not None
        if self._moving is None:
            move = self.topology.captured_move()
            if move is None or not self.topology.moves_next:
                return self._run_eagerly(batch)
            self._moving = self._capture(batch, move)
        assert self._moving.move is not None
        self._moving.move.prepare(self.topology.step + 1)
        loss = self._moving.replay(batch)
        self.topology.count_captured_move(self._moving.move)
        return loss

    def _capture(self, batch: tuple[Tensor, ...], move: CapturedMove | None) -> "_Capture":
        for optimizer in self.optimizers:
            _require_tensor_rates(optimizer)
        static = tuple(tensor.clone() for tensor in batch)
        self._zero_grad()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        other = self._plain or self._moving
        with self._uncounted(), torch.cuda.graph(graph, pool=other.graph.pool() if other else None):
            loss = self._train(static)
            if move is not None:
                move.record()
        return _Capture(graph, static, loss.detach(), move)

    def _zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def _train(self, batch: tuple[Tensor, ...]) -> Tensor:
        loss = self.loss_fn(*batch)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()
        return loss

    def _uncounted(self) -> AbstractContextManager[None]:
        """A captured step does not run, so the controller must not count it."""
        return nullcontext() if self.topology is None else self.topology.paused()


class _Capture:
    """A captured step: its graph, the batch it reads, the loss it writes, and the move in it."""

    def __init__(
        self, graph: torch.cuda.CUDAGraph, batch: tuple[Tensor, ...], loss: Tensor, move: CapturedMove | None
    ) -> None:
        self.graph, self.batch, self.loss, self.move = graph, batch, loss, move

    def replay(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Run the step on ``batch``."""
        for static, tensor in zip(self.batch, batch, strict=True):
            static.copy_(tensor)
        self.graph.replay()
        return self.loss


def _require_tensor_rates(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], Tensor):
            raise TopologyError(
                f"the learning rate {group['lr']} is a number, which a CUDA graph would keep for good; build the "
                "optimizer with lr=torch.tensor(...) on the GPU and fused=True or capturable=True"
            )
