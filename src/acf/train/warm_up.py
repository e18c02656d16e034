"""`acf.warm_up`: all first-use work of a training step ahead of training."""

import sys
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from acf.errors import ArgumentError, require_kind
from acf.train.controller import TopologyController, require_topology
from acf.train.graphed import GraphedStep
from acf.train.restored import restored

PASSES = 3
"""Forward and backward passes of each kind: ``mode="reduce-overhead"`` runs one, captures one, then replays."""


def warm_up(
    model: nn.Module,
    step: Callable[..., Tensor],
    *batch: Tensor,
    topology: TopologyController | None = None,
) -> None:
    """Compile, tune and capture what ``step(*batch)`` needs, with all of ``model`` and its training left as it is.

    ``step`` is a `GraphedStep`, or the function of a training loop that gives the loss, compiled or not: forward and
    backward passes run, those that score absent blocks for ``topology`` too. Parameters and buffers of ``model``
    (batch-norm statistics), gradients, optimizer state, torch's random state, the topology and its step count are the
    same afterwards. The fastest kernels are remembered on disk (``ACF_CACHE_DIR``), so another process finds them.

    >>> from acf.nn import BlockSparsity, sparsify_
    >>> model = nn.Sequential(nn.Linear(64, 64))
    >>> summary = sparsify_(model, BlockSparsity(0.5, block=16))
    >>> warm_up(model, lambda x: model(x).square().mean(), torch.randn(8, 64))
    """
    require_kind(model, nn.Module, "model", "pass the torch.nn.Module that is trained")
    if isinstance(step, GraphedStep):
        step.warm_up(model, *batch)
        return
    if not callable(step):
        raise ArgumentError(f"step {step!r} cannot be called; pass the function that gives the loss of a batch")
    require_topology(model, topology)
    with nullcontext() if topology is None else topology.suspended(), restored(model):
        for _ in range(PASSES):
            _pass(model, step, batch)
        if topology is None:
            return
        for _ in range(PASSES):
            with topology.scoring():  # anew for each pass, as in training: a probe's gradient belongs to one replay
                _pass(model, step, batch)


def _pass(model: nn.Module, step: Callable[..., Tensor], batch: tuple[Tensor, ...]) -> None:
    if "torch._inductor.cudagraph_trees" in sys.modules:  # the call would import the compiler
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
    loss = step(*batch)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shown = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise ArgumentError(f"the step gave {shown} and no scalar; let it return the loss that training differentiates")
    loss.backward()  # type: ignore[no-untyped-call]
    for parameter in model.parameters():
        parameter.grad = None
