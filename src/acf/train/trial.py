"""A trial of an optimizer on a small parameter: whether it goes on when the state of some blocks starts afresh."""

from collections import OrderedDict
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from acf.train.initial_state import initial_value
from acf.train.optimizers import Optimizer

SLOTS, NEW_SLOTS, STEPS = 4, 2, 4
"""Blocks of the small parameter, those that start afresh after the second step, and steps in all."""

HOOKS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


class _NotFiniteError(Exception):
    """A weight or an entry of the state is no longer finite."""


class _CannotCopyError(Exception):
    """The optimizer holds something that a trial must not share with it."""


def why_not_afresh(optimizer: Optimizer, weight: Tensor) -> str:
    """How ``optimizer`` fails once the state of a block of ``weight`` is that of a new block; empty if it does not.

    Also empty where it cannot be told: the optimizer needs a closure, or holds more than numbers beside its state, or
    fails on the small parameter anyway. The optimizer itself, its state and the random numbers stay as they are.
    """
    devices = [weight.device] if weight.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        try:
            _run(optimizer, weight, new_slots=0)
        except Exception:
            return ""
        try:
            _run(optimizer, weight, new_slots=NEW_SLOTS)
        except _NotFiniteError:
            return "gives values that are not finite"
        except Exception as error:
            return f"raises {type(error).__name__} ({error})"
    return ""


def _run(optimizer: Optimizer, weight: Tensor, new_slots: int) -> None:
    """A few steps on random gradients, of which some are zero once blocks are new, as dead activations give them."""
    random = torch.Generator().manual_seed(0)
    like = {"device": weight.device, "dtype": weight.dtype}
    parameter = nn.Parameter(torch.randn(SLOTS, 2, 2, generator=random).to(**like))  # type: ignore[call-overload]
    copy = _copy(optimizer, weight, parameter)
    for step in range(STEPS):
        gradient = torch.randn(parameter.shape, generator=random)
        if step > 1:
            gradient[0, 0] = 0.0
        parameter.grad = gradient.to(**like)  # type: ignore[call-overload]
        copy.step()
        _check_finite(parameter, copy.state[parameter])
        if step == 1:
            _start_afresh(copy, parameter, new_slots)


@torch.no_grad()
def _start_afresh(optimizer: Optimizer, parameter: nn.Parameter, slots: int) -> None:
    parameter[:slots] = 0.0
    for entry, value in optimizer.state[parameter].items():
        if isinstance(value, Tensor) and value.dim() and value.shape[0] == SLOTS:
            value[:slots] = initial_value(optimizer, parameter, entry)


def _check_finite(parameter: Tensor, state: dict[Any, Any]) -> None:
    tensors = [parameter, *(value for value in state.values() if isinstance(value, Tensor))]
    if not all(bool(tensor.isfinite().all()) for tensor in tensors):
        raise _NotFiniteError


def _copy(optimizer: Optimizer, weight: Tensor, parameter: nn.Parameter) -> Optimizer:
    """The optimizer as it is before its first step, with ``parameter`` in the place of all others."""
    group = next(group for group in optimizer.param_groups if any(each is weight for each in group["params"]))
    options = {key: value for key, value in group.items() if key not in ("params", "param_names", "step")}
    own = {key: value for key, value in vars(optimizer).items() if key not in ("state", "param_groups", "step", *HOOKS)}
    if not _is_plain(options) or not _is_plain(own):
        raise _CannotCopyError
    copy = object.__new__(type(optimizer))
    vars(copy).update(deepcopy(own), **{name: OrderedDict() for name in HOOKS if name in vars(optimizer)})
    copy.state = type(optimizer.state)(dict) if hasattr(optimizer.state, "default_factory") else {}
    copy.param_groups = [{**deepcopy(options), "params": [parameter]}]
    return copy


def _is_plain(value: Any) -> bool:
    """Whether the value is made of numbers, strings and tensors of one number, which a copy does not share."""
    if isinstance(value, dict):
        return all(_is_plain(each) for each in value.values())
    if isinstance(value, list | tuple | set):
        return all(_is_plain(each) for each in value)
    return (
        value is None or isinstance(value, bool | int | float | str) or (type(value) is Tensor and value.numel() == 1)
    )
