"""Optimizer state after blocks moved or were pruned, for any optimizer."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from acf.sparse import zero_slots


def zero_optimizer_state(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, slots: Tensor) -> None:
    """Zero the slots where bool ``slots [nnz]`` is true, in every state tensor with the slots of ``parameter``.

    That is a tensor of the parameter's shape, or of that shape with block height or width reduced to 1, as
    factored second moments have it, under whatever name the optimizer keeps it.
    """
    for _, value in _slot_state(optimizer, parameter, parameter.shape):
        zero_slots(value, slots)


def keep_optimizer_state(
    optimizer: torch.optim.Optimizer, parameter: nn.Parameter, old_shape: torch.Size, slots: Tensor
) -> None:
    """Keep only ``slots`` (int64 ``[kept]``) of every state tensor that fitted the parameter at its ``old_shape``."""
    for key, value in list(_slot_state(optimizer, parameter, old_shape)):
        optimizer.state[parameter][key] = value[slots]


def _slot_state(
    optimizer: torch.optim.Optimizer, parameter: nn.Parameter, shape: torch.Size
) -> Iterator[tuple[Any, Tensor]]:
    for key, value in optimizer.state.get(parameter, {}).items():
        if isinstance(value, Tensor) and _has_slots(value, shape):
            yield key, value


def _has_slots(value: Tensor, shape: torch.Size) -> bool:
    if value.dim() != len(shape) or value.shape[0] != shape[0]:
        return False
    return all(size in (1, whole) for size, whole in zip(value.shape, shape, strict=True))
