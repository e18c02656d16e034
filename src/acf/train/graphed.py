"""A training step as a CUDA graph, replayed without the host, and run eagerly where blocks are scored and moved."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from acf.errors import TopologyError
from acf.train.controller import TopologyController

EAGER_STEPS = 3
"""Steps that run before the capture, so that optimizer state exists and every kernel is compiled and tuned."""


class GraphedStep:
    """Forward, loss, backward and optimizer step, captured once and replayed.

    ``loss_fn(*batch)`` returns the loss; it may call a `torch.compile`d model. The first steps run eagerly and train
    like any other. Batches must keep shape, dtype and device. With ``topology``, steps whose backward pass scores
    absent blocks run eagerly, because a replay runs no Python; moving blocks writes weights and indices in place, so
    the captured graph stays valid. Learning rates must be tensors (``lr=torch.tensor(0.1)``), or the graph would keep
    the rate of the moment it was captured. On a CPU every step is eager.

    A call returns the loss as a tensor that the next call overwrites.
    """

    def __init__(
        self,
        loss_fn: Callable[..., Tensor],
        optimizer: torch.optim.Optimizer,
        topology: TopologyController | None = None,
    ) -> None:
        self.loss_fn = loss_fn
        self.optimizer = optimizer
        self.topology = topology
        self.eager_steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch: tuple[Tensor, ...] = ()
        self._loss: Tensor | None = None

    def __call__(self, *batch: Tensor) -> Tensor:
        """Train on one batch; the loss, detached."""
        scores = self.topology is not None and self.topology.scores_next
        if not batch[0].is_cuda or scores or self.eager_steps < EAGER_STEPS:
            return self._run_eagerly(batch)
        if self._graph is None:
            self._capture(batch)
        return self._replay(batch)

    def _run_eagerly(self, batch: tuple[Tensor, ...]) -> Tensor:
        self.eager_steps += 1
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_fn(*batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def _capture(self, batch: tuple[Tensor, ...]) -> None:
        for group in self.optimizer.param_groups:
            if not isinstance(group["lr"], Tensor):
                raise TopologyError(
                    f"the learning rate {group['lr']} is a number, which a CUDA graph would keep for good; build the "
                    "optimizer with lr=torch.tensor(...) on the GPU and fused=True or capturable=True"
                )
        self._batch = tuple(tensor.clone() for tensor in batch)
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with self._uncounted(), torch.cuda.graph(graph):
            loss = self.loss_fn(*self._batch)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        self._graph, self._loss = graph, loss.detach()

    def _replay(self, batch: tuple[Tensor, ...]) -> Tensor:
        assert self._graph is not None
        assert self._loss is not None
        for static, tensor in zip(self._batch, batch, strict=True):
            static.copy_(tensor)
        self._graph.replay()
        if self.topology is not None:
            self.topology.count_step()
        return self._loss

    def _uncounted(self) -> Any:
        """While the step is captured it does not run, so the controller must not count it."""
        from contextlib import nullcontext

        return nullcontext() if self.topology is None else self.topology.paused()
