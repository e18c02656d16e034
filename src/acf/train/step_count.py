"""Counting training steps: one per batch, whatever optimizers, wrappers and loss scalers do in between."""

import inspect
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from acf.errors import TopologyError
from acf.train.optimizers import Optimizer, with_inner


class StepCount:
    """The number of steps, of which those that a loss scaler skipped on the device are taken off when it is read.

    A fused optimizer is called in every step and skips the update on the device where ``found_inf`` is 1. The host
    learns of it in `settle`, so that no step but those that score or move blocks waits for the device.
    """

    def __init__(self) -> None:
        self.most = 0
        self._skipped: Tensor | None = None

    def add(self, found_inf: Tensor | None) -> None:
        """Count a step, which was skipped if the tensor ``found_inf`` is not zero."""
        self.most += 1
        if found_inf is not None:
            skipped = (found_inf != 0).sum()
            self._skipped = skipped if self._skipped is None else self._skipped + skipped.to(self._skipped.device)

    def settle(self) -> int:
        """The exact count; waits for the device where a fused optimizer ran under a loss scaler."""
        if self._skipped is not None:
            self.most -= int(self._skipped)
            self._skipped = None
        return self.most

    def set(self, value: int) -> None:
        """Continue from ``value``."""
        self.most, self._skipped = value, None


class StepHooks:
    """Calls ``on_step(found_inf)`` when every one of ``optimizers`` has stepped since the last call.

    Wrappers and the optimizers inside them are hooked alike, and only the outermost ``step`` in progress counts: SAM
    counts once per batch, whether it is called with a closure or as ``first_step`` and ``second_step``.
    """

    def __init__(self, optimizers: Sequence[Optimizer], on_step: Callable[[Tensor | None], None]) -> None:
        self.on_step = on_step
        self._running: list[list[int]] = [[] for _ in optimizers]
        self._stepped: dict[int, Tensor | None] = {}
        self.handles: list[RemovableHandle] = []
        for index, hooked in enumerate([_hookable(optimizer) for optimizer in optimizers]):
            for member in hooked:
                self.handles.append(member.register_step_pre_hook(partial(self._before, index)))
                self.handles.append(member.register_step_post_hook(partial(self._after, index)))

    def remove(self) -> None:
        """Stop counting."""
        for handle in self.handles:
            handle.remove()

    def _before(self, index: int, optimizer: Optimizer, *_: Any) -> None:
        running = self._running[index]
        if id(optimizer) in running and not _is_nested(optimizer):  # an earlier step raised, so it never ended
            running.clear()
        running.append(id(optimizer))

    def _after(self, index: int, optimizer: Optimizer, _: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        running = self._running[index]
        if running:
            running.pop()
        if named.get("closure", optimizer) is None and _only_sets_up_state():
            return
        found_inf = getattr(optimizer, "found_inf", None)  # set by GradScaler while a fused optimizer steps
        if isinstance(found_inf, Tensor) or index not in self._stepped:
            self._stepped[index] = found_inf if isinstance(found_inf, Tensor) else None
        if not running and len(self._stepped) == len(self._running):
            found = [each.sum() for each in self._stepped.values() if each is not None]
            self._stepped = {}
            self.on_step(torch.stack([each.to(found[0].device) for each in found]).sum() if found else None)


def _is_nested(optimizer: Optimizer) -> bool:
    """Whether a ``step`` of the optimizer runs inside another one of its own, as ``super().step()`` does."""
    frame, steps = inspect.currentframe(), 0
    while frame is not None:
        steps += frame.f_code is _HOOKED_STEP and frame.f_locals.get("self") is optimizer
        frame = frame.f_back
    return steps > 1


def _only_sets_up_state() -> bool:
    """Whether `torch.distributed.checkpoint` runs the ``step``, with zero gradients, so that there is state to load."""
    module = sys.modules.get("torch.distributed.checkpoint.state_dict")
    setting_up = getattr(getattr(module, "_init_optim_state", None), "__code__", None)
    frame = inspect.currentframe()
    while frame is not None and setting_up is not None:
        if frame.f_code is setting_up:
            return True
        frame = frame.f_back
    return False


_HOOKED_STEP = torch.optim.Optimizer.profile_hook_step(lambda *_: None).__code__
"""What runs around every ``step`` and calls its hooks."""


def _hookable(optimizer: Optimizer) -> list[Optimizer]:
    """The optimizers in ``optimizer`` whose ``step`` calls hooks; those that share their hooks, once."""
    members = [member for member in with_inner(optimizer) if getattr(type(member).step, "hooked", False)]
    by_hooks = {
        id(each._optimizer_step_post_hooks): each for each in members if "_optimizer_step_post_hooks" in vars(each)
    }
    if not by_hooks:
        raise TopologyError(
            f"the steps of {type(optimizer).__name__} cannot be counted: neither it nor an optimizer in its attributes "
            "has step hooks; derive it from torch.optim.Optimizer and call super().__init__, or pass the optimizer "
            "that it steps"
        )
    return list(by_hooks.values())


class GradientRestarts:
    """How often the gradient of ``weight`` was computed anew, not accumulated, since the last counted step.

    It is once per step in a plain loop and twice with SAM. If it grows without a counted step, something else than the
    hooked ``step`` updates the weights.
    """

    def __init__(self, weight: nn.Parameter, on_restart: Callable[[int], None]) -> None:
        self.count = 0
        self._on_restart = on_restart
        self._last: weakref.ref[Tensor] | None = None
        self._handle = weight.register_post_accumulate_grad_hook(self._after_gradient)  # type: ignore[no-untyped-call]

    def clear(self) -> None:
        """A step was counted."""
        self.count = 0

    def remove(self) -> None:
        """Stop looking at gradients."""
        self._handle.remove()

    def _after_gradient(self, weight: Tensor) -> None:
        if weight.grad is None or (self._last is not None and self._last() is weight.grad):
            return
        self._last = weakref.ref(weight.grad)
        self.count += 1
        self._on_restart(self.count)
