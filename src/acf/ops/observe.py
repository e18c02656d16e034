"""Observing the operands of a weight gradient while it is computed.

The gradient norms of absent blocks need a layer's input and output gradient, which meet in the weight-gradient op and
nowhere else. That op is opaque to compilers, so an observer can come and go without a graph being traced again.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from torch import Tensor

Result = TypeVar("Result")


class WeightGradObserver(Protocol):
    """An object that receives the operands of weight gradients."""

    def add(self, output_grad: Tensor, x: Tensor) -> None:
        """Take the output gradient and the input, in the layout of the op."""


# Weak references: an observer keeps no model alive.
_OBSERVERS: "WeakValueDictionary[int, WeightGradObserver]" = WeakValueDictionary()


def observe_weight_grad(block_rows: Tensor, observer: WeightGradObserver) -> None:
    """Call ``observer`` whenever the weight gradient of the layer that owns ``block_rows`` is computed.

    The tensor's storage identifies the layer, so a copy of the layer is not observed.
    """
    _OBSERVERS[block_rows.data_ptr()] = observer


def stop_observing(block_rows: Tensor) -> None:
    """Remove the observer of this layer."""
    _OBSERVERS.pop(block_rows.data_ptr(), None)


def observed(weight_grad: Callable[..., Result]) -> Callable[..., Result]:
    """A weight-gradient kernel that passes its operands to the layer's observer first."""

    @wraps(weight_grad)
    def observed_weight_grad(output_grad: Tensor, x: Tensor, block_rows: Tensor, *rest: Any) -> Result:
        notify(block_rows, output_grad, x)
        return weight_grad(output_grad, x, block_rows, *rest)

    return observed_weight_grad


def notify(block_rows: Tensor, output_grad: Tensor, x: Tensor) -> None:
    """Pass the operands to the observer of this layer, if there is one."""
    if _OBSERVERS:
        observer = _OBSERVERS.get(block_rows.data_ptr())
        if observer is not None:
            observer.add(output_grad, x)
