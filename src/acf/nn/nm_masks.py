"""When the masks of an N:M layer are generated: once after every change of its weight.

The first pass after a weight update generates the masks, and later passes (further micro-batches, recomputed
activations, evaluation) reuse them. A change is detected by two counters. The weight's version counter shows optimizer
steps, loaded checkpoints, DDP broadcasts and in-place edits. FSDP, which gathers a weight into the same tensor, fused
optimizers and writes to ``parameter.data`` bypass it; all of them write at optimizer steps, which are counted too.
Replays of CUDA graphs bypass both, so nothing is kept of a weight that such a graph reads or writes. Layers that run
while a graph is captured show what it reads. A compiled model shows nothing then, since its Python does not run; the
optimizer whose step is captured with it does.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary


class NMMasks(NamedTuple):
    """Bool masks of the weight's shape; None where a pass has no mask of its own."""

    forward: Tensor | None
    backward: Tensor | None


_IN_GRAPHS = WeakIdKeyDictionary()
"""Weights that a captured CUDA graph reads or writes: a replay changes no counter."""


def keep_nothing_of(weights: Iterable[Tensor]) -> None:
    """Derive masks and operands of ``weights`` anew in every pass from now on: a captured CUDA graph writes them."""
    for weight in weights:
        _IN_GRAPHS[weight] = True


def may_keep(weight: Tensor) -> bool:
    """Whether what is derived of ``weight`` may be kept for the next pass.

    Not in graphs, compiled or captured, which must derive it anew at every run, and not of borrowed weights. Once a
    CUDA graph has been captured, not of its weights either: no counter shows what a replay writes.
    """
    if torch.compiler.is_compiling() or not isinstance(weight, nn.Parameter) or weight.is_inference():
        return False
    if _is_captured(weight):
        keep_nothing_of([weight])
    return weight not in _IN_GRAPHS


def _is_captured(weight: Tensor) -> bool:
    return weight.is_cuda and torch.cuda.is_current_stream_capturing()


class _OptimizerSteps:
    """Counts the steps of all optimizers of this process since the first N:M layer was made."""

    count = 0
    hook: Any = None

    @classmethod
    def watch(cls) -> None:
        if cls.hook is None:
            cls.hook = register_optimizer_step_post_hook(cls._after_step)

    @classmethod
    def _after_step(cls, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        cls.count += 1
        written = [weight for group in optimizer.param_groups for weight in group["params"]]
        if written and _is_captured(written[0]):
            keep_nothing_of(written)


class WeightState(NamedTuple):
    """A weight and both counters at the time its masks were generated."""

    weight: nn.Parameter
    version: int
    optimizer_steps: int

    @classmethod
    def of(cls, weight: nn.Parameter) -> "WeightState":
        """The state of ``weight`` now."""
        _OptimizerSteps.watch()
        return cls(weight, weight._version, _OptimizerSteps.count)

    def holds_for(self, weight: nn.Parameter) -> bool:
        """Whether ``weight`` is the same tensor and nothing has written to it since."""
        return (
            self.weight is weight and self.version == weight._version and self.optimizer_steps == _OptimizerSteps.count
        )
