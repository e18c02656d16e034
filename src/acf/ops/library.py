"""Defining the ops of `acf` in torch's dispatcher, with as little Python per call as it allows.

`torch.library.custom_op` would do the same in fewer lines, but its checks on every call take the host two to three
times as long as these registrations, which for a small layer is longer than its product. `torch.library.opcheck` makes
the same checks in the tests.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

NAMESPACE = "acf"
_LIBRARY: Any = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]

Result = TypeVar("Result")


class Op(Generic[Result]):
    """An op without autograd rule: one schema, a fake, a kernel that runs anywhere, and faster ones per device.

    The schema is read off the annotations of ``everywhere``, the kernel for devices that have none of their own.
    Autograd passes through unseen, so differentiable functions are built of these ops with `differentiable`.
    """

    def __init__(self, name: str, everywhere: Callable[..., Result], fake: Callable[..., Result]) -> None:
        self.name = name
        _LIBRARY.define(name + torch.library.infer_schema(everywhere, mutates_args=()))
        self.overload = getattr(getattr(torch.ops, NAMESPACE), name).default
        _LIBRARY.impl(name, everywhere, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)

    def __call__(self, *args: Any) -> Result:
        result: Result = self.overload(*args)
        return result

    @property
    def schema(self) -> str:
        """Arguments and results, without the name."""
        schema = str(self.overload._schema)
        return schema[schema.index("(") :]

    def register_kernel(self, device: str, kernel: Callable[..., Result]) -> None:
        """Run ``kernel`` for tensors on ``device`` (``cpu`` or ``cuda``)."""
        # Not by torch.library.register_kernel, which switches the tracing of Python off and on again at every call:
        # compilers see the op, never its kernel, and the switch costs a fifth of a small call.
        _LIBRARY.impl(self.name, kernel, device.upper())


def differentiable(name: str, schema: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """An op with ``schema`` that runs ``function``, which knows its own gradient.

    Compilers see through it to the ops that ``function`` calls.
    """
    _LIBRARY.define(name + schema)
    _LIBRARY.impl(name, function, "CompositeImplicitAutograd")
    overload: Callable[..., Tensor] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return overload
