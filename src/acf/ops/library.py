"""Defining the ops of `acf` in torch's dispatcher, with as little Python per call as it allows.

`torch.library.custom_op` would do the same in fewer lines, but its checks on every call take the host two to three
times as long as these registrations, which for a small layer is longer than its product. `torch.library.opcheck` makes
the same checks in the tests.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

NAMESPACE = "acf"
_LIBRARY: Any = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]

Kernel = Callable[..., Tensor]


class Op:
    """An op without autograd rule: one schema, a fake, a kernel that runs anywhere, and faster ones per device.

    The schema is read off the annotations of ``everywhere``, the kernel for devices that have none of their own.
    Autograd passes through unseen, so differentiable functions are built of these ops with `differentiable`.
    """

    def __init__(self, name: str, everywhere: Kernel, fake: Kernel) -> None:
        self.name = name
        _LIBRARY.define(name + torch.library.infer_schema(everywhere, mutates_args=()))
        self.overload = getattr(getattr(torch.ops, NAMESPACE), name).default
        _LIBRARY.impl(name, everywhere, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)

    def __call__(self, *args: Any) -> Tensor:
        result: Tensor = self.overload(*args)
        return result

    def register_kernel(self, device: str, kernel: Kernel) -> None:
        """Run ``kernel`` for tensors on ``device`` (``cpu`` or ``cuda``)."""
        # Not by torch.library.register_kernel, which switches the tracing of Python off and on again at every call:
        # compilers see the op, never its kernel, and the switch costs a fifth of a small call.
        _LIBRARY.impl(self.name, kernel, device.upper())


def differentiable(name: str, like: Op, function: Kernel) -> Callable[..., Tensor]:
    """An op with the schema of ``like`` that runs ``function``, which knows its own gradient.

    Compilers see through it to the ops that ``function`` calls.
    """
    schema = str(like.overload._schema)
    _LIBRARY.define(name + schema[schema.index("(") :])
    _LIBRARY.impl(name, function, "CompositeImplicitAutograd")
    overload: Callable[..., Tensor] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return overload
