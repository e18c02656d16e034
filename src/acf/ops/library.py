"""Registering the ops of `acf` in torch's dispatcher with little host time per call.

`torch.library.custom_op` would do the same in fewer lines, but its checks on every call take two to three times as long
as these registrations: for a small layer longer than the product itself. `torch.library.opcheck` makes the same checks
in the tests.

An op takes a `BlockTopology` as its six tensors and a `Conv2dGeometry` as its four pairs: schemas know neither.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from acf.ops.geometry import Conv2dGeometry
from acf.sparse import BlockTopology

NAMESPACE = "acf"
TOPOLOGY = ", ".join(f"Tensor {name}" for name in BlockTopology._fields)
GEOMETRY = ", ".join(f"SymInt[] {field.name}" for field in fields(Conv2dGeometry))
_LIBRARY: Any = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]

Result = TypeVar("Result")


class Op(Generic[Result]):
    """An op without an autograd rule: a schema, a fake, a kernel for every device, and faster kernels for some.

    ``schema`` is in torch's notation without the name. ``everywhere`` runs on devices without a kernel of their own.
    Differentiable functions are built of these ops with `differentiable`.
    """

    def __init__(self, name: str, schema: str, everywhere: Callable[..., Result], fake: Callable[..., Result]) -> None:
        self.name, self.schema = name, schema
        _LIBRARY.define(name + schema)
        self.overload = getattr(getattr(torch.ops, NAMESPACE), name).default
        _LIBRARY.impl(name, everywhere, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)

    def __call__(self, *args: Any) -> Result:
        result: Result = self.overload(*args)
        return result

    def register_kernel(self, device: str, kernel: Callable[..., Result]) -> None:
        """Run ``kernel`` for tensors on ``device`` (``cpu`` or ``cuda``)."""
        # torch.library.register_kernel would switch the tracing of Python off and on at every call. Compilers see the
        # op and never its kernel, and the switch costs a fifth of a small call.
        _LIBRARY.impl(self.name, kernel, device.upper())


def differentiable(name: str, schema: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """An op with ``schema`` that runs the differentiable ``function``; compilers trace into it."""
    _LIBRARY.define(name + schema)
    _LIBRARY.impl(name, function, "CompositeImplicitAutograd")
    overload: Callable[..., Tensor] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return overload
