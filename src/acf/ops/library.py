"""Registering the ops of `acf` in torch's dispatcher with little host time per call.

`torch.library.custom_op` would do the same in fewer lines, but its checks on every call take two to three times as long
as these registrations: for a small layer longer than the product itself. `torch.library.opcheck` makes the same checks
in the tests.

An op takes a `BlockTopology` as its six tensors and a `Conv2dGeometry` as its four pairs: schemas know neither.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from acf.errors import ArgumentError
from acf.ops.geometry import Conv2dGeometry
from acf.sparse import BlockTopology

NAMESPACE = "acf"
TOPOLOGY = ", ".join(f"Tensor {name}" for name in BlockTopology._fields)
GEOMETRY = ", ".join(f"SymInt[] {field.name}" for field in fields(Conv2dGeometry))
TOKEN = "Tensor? token=None"
_LIBRARY: Any = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]

Result = TypeVar("Result")


class Op(Generic[Result]):
    """An op without an autograd rule: a schema, a fake, a kernel for every device, and faster kernels for some.

    ``schema`` is in torch's notation without the name. ``everywhere`` runs on devices without a kernel of their own.
    Differentiable functions are built of these ops with `differentiable`. Where each row (token, image) of the first
    argument gives a row of the result, ``fold(other_args, batch_size)`` gives the other arguments for ``batch_size``
    times the rows, and `torch.vmap` over the first argument is one call.
    """

    def __init__(
        self,
        name: str,
        schema: str,
        everywhere: Callable[..., Result],
        fake: Callable[..., Result],
        fold: Callable[[tuple[Any, ...], int], tuple[Any, ...]] | None = None,
    ) -> None:
        self.name, self.schema, self.fold = name, schema, fold
        _LIBRARY.define(name + schema)
        self.overload = getattr(getattr(torch.ops, NAMESPACE), name).default
        _LIBRARY.impl(name, everywhere, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", _refusing_meta(fake), lib=_LIBRARY)
        torch.library.register_vmap(f"{NAMESPACE}::{name}", self._vmap, lib=_LIBRARY)

    def __call__(self, *args: Any) -> Result:
        result: Result = self.overload(*args)
        return result

    def register_kernel(self, device: str, kernel: Callable[..., Result]) -> None:
        """Run ``kernel`` for tensors on ``device`` (``cpu`` or ``cuda``)."""
        # torch.library.register_kernel would switch the tracing of Python off and on at every call. Compilers see the
        # op and never its kernel, and the switch costs a fifth of a small call.
        _LIBRARY.impl(self.name, kernel, device.upper())

    def _vmap(self, info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        """The op for `torch.vmap`: one call where only the rows are batched, else a loop."""
        first_alone = in_dims[0] is not None and not any(isinstance(dim, int) for dim in in_dims[1:])
        if first_alone and self.fold is not None:
            rows = args[0].movedim(in_dims[0], 0).flatten(0, 1)
            folded: Any = self.overload(rows, *self.fold(args[1:], info.batch_size))
            return folded.unflatten(0, (info.batch_size, -1)), 0
        calls = [
            self.overload(*(_part(arg, dim, index) for arg, dim in zip(args, in_dims, strict=True)))
            for index in range(info.batch_size)
        ]
        if isinstance(calls[0], Tensor):
            return torch.stack(calls), 0
        return tuple(torch.stack(outputs) for outputs in zip(*calls, strict=True)), (0,) * len(calls[0])


def _refusing_meta(fake: Callable[..., Result]) -> Callable[..., Result]:
    """``fake``, which torch also calls for a real input beside operands without values, on the device ``meta``.

    What it would return then is memory that nobody has written.
    """

    @wraps(fake)
    def checked(*args: Any) -> Result:
        tensors = [each for arg in args for each in (arg if isinstance(arg, list | tuple) else [arg])]
        without_values = any(isinstance(each, Tensor) and each.device.type == "meta" for each in tensors[1:])
        if without_values and args[0].device.type != "meta":
            raise ArgumentError(
                f"the first operand is on {args[0].device} and another on meta, where tensors have no values; give the "
                "layer values with to_empty and load_state_dict, or pass an input on meta"
            )
        return fake(*args)

    return checked


def _part(arg: Any, dim: Any, index: int) -> Any:
    return arg.select(dim, index) if isinstance(dim, int) else arg


def unchanged(args: tuple[Any, ...], batch_size: int) -> tuple[Any, ...]:
    """``fold`` of an op whose other arguments do not depend on the number of rows."""
    return args


def differentiable(name: str, schema: str, function: Callable[..., Result]) -> Callable[..., Result]:
    """An op with ``schema`` that runs the differentiable ``function``; compilers keep the op, or trace into it.

    What is returned calls the op only while a graph is made: eager calls run the function itself, since transforms of
    `torch.func` must see its autograd functions before the dispatcher does.
    """
    _LIBRARY.define(name + schema)
    _LIBRARY.impl(name, function, "CompositeImplicitAutograd")
    overload: Callable[..., Result] = getattr(getattr(torch.ops, NAMESPACE), name).default

    def call(*args: Any) -> Result:
        return overload(*args) if torch.compiler.is_compiling() else function(*args)

    return call
