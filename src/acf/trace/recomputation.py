"""Calls that activation checkpointing makes twice, so that a trace has each once.

A checkpointed segment runs again inside the backward pass. Without re-entrant autograd the first run is part of the
graph and its gradients arrive there. With it the first run has no graph: gradients arrive at the second, which belongs
to the call that had the same operands.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
import torch

from acf.trace.bits import BitTensor

Call = TypeVar("Call")


def in_backward() -> bool:
    """Whether a backward pass runs in this thread: products of activations that are computed now were before."""
    return torch._C._current_graph_task_id() != -1


def same_bits(first: BitTensor, second: BitTensor) -> bool:
    """Whether two tensors have one shape and one zero pattern."""
    return first.shape == second.shape and np.array_equal(first.packed, second.packed)


class CallsWithoutGraph(Generic[Call]):
    """The calls recorded so far whose output took no part in a graph, by name, oldest first."""

    def __init__(self) -> None:
        self._calls: dict[str, list[Call]] = {}

    def add(self, name: str, call: Call) -> None:
        """Remember a call."""
        self._calls.setdefault(name, []).append(call)

    def take(self, name: str, matches: Callable[[Call], bool]) -> Call | None:
        """The first call that ``matches``, which is then forgotten; None if there is none.

        ``name`` is that of the call, or its end where a function runs again outside the module it belongs to.
        """
        for calls in (calls for known, calls in self._calls.items() if known == name or _is_end(name, known)):
            for index, call in enumerate(calls):
                if matches(call):
                    return calls.pop(index)
        return None


def _is_end(name: str, known: str) -> bool:
    return name.startswith(".") and known.endswith(name)
