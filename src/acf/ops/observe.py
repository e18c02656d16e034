"""Observing the operands of a weight gradient while it is computed.

The gradient norms of absent blocks need a layer's input and output gradient, which meet in the weight-gradient op and
nowhere else. That op is opaque to compilers, so an observer can come and go without a graph being traced again.

The op knows the layer by its token: a tensor of one integer that the graph carries from the forward to the backward
pass. Its value names the layer, so it survives hooks on saved tensors, which may hand a copy to the backward pass, and
a graph that is compiled once serves every layer of a shape. An integer argument would be compiled into the graph.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import count
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary, finalize

import torch
from torch import Tensor

from acf.sparse import BlockTopology

Result = TypeVar("Result")


class WeightGradObserver(Protocol):
    """An object that receives the operands of weight gradients."""

    def add(self, output_grad: Tensor, x: Tensor, *offsets: Tensor) -> None:
        """Take the output gradient and the input, in the layout of the op, and of experts the token offsets."""


# The layers' numbers by the address of their tokens in device memory: to read a value there is to wait for the device.
_NUMBERS: dict[int, int] = {}


class LayerIdentity:
    """The identity of one layer in this process; a copy, and one that was pickled, is another.

    ``probe`` is the tensor whose gradient a compiled graph of the layer fills with scores (`acf.ops.probe`), if any.
    """

    _numbers = count(1)

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.number = next(LayerIdentity._numbers)
        self.probe: Tensor | None = None
        self.token = self._make_token(torch.device(device))

    def move_to(self, device: torch.device) -> None:
        """Follow the layer to another device, which its ops compute on."""
        if self.token.device != device:
            self.token = self._make_token(device)

    def _make_token(self, device: torch.device) -> Tensor:
        with torch.inference_mode(False):
            token = torch.tensor([self.number], dtype=torch.int64, device=device)
        if device.type == "cuda" and type(token) is Tensor:
            _NUMBERS[token.data_ptr()] = self.number
            finalize(token, _NUMBERS.pop, token.data_ptr(), None)
        return token

    def __deepcopy__(self, memo: Any) -> "LayerIdentity":
        return LayerIdentity(self.token.device)

    def __reduce__(self) -> tuple[Any, ...]:
        return LayerIdentity, ()


# Weak references: an observer keeps no model alive.
_OBSERVERS: "WeakValueDictionary[int, WeightGradObserver]" = WeakValueDictionary()


def observe_weight_grad(layer: LayerIdentity, observer: WeightGradObserver) -> None:
    """Call ``observer`` whenever the weight gradient of this layer is computed."""
    _OBSERVERS[layer.number] = observer


def stop_observing(layer: LayerIdentity) -> None:
    """Remove the observer of this layer."""
    _OBSERVERS.pop(layer.number, None)


def observed(weight_grad: Callable[..., Result]) -> Callable[..., Result]:
    """A weight-gradient kernel that passes its operands to the layer's observer first.

    The op's last argument is the token. Torch leaves it out where it is None, its default. A tensor between the
    topology and the token holds the token offsets of experts.
    """

    @wraps(weight_grad)
    def observed_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Result:
        *arguments, token = rest if isinstance(rest[-1], Tensor) else (*rest, None)
        offsets = [each for each in arguments[len(BlockTopology._fields) :] if isinstance(each, Tensor)]
        notify(token, output_grad, x, *offsets)
        return weight_grad(output_grad, x, *arguments)

    return observed_weight_grad


class _Captures:
    """CUDA graphs of this process that contain weight gradients."""

    own = False  # whether a graph is being captured that observers belong in
    others = False  # whether there has been another one


@contextmanager
def observed_capture() -> Iterator[None]:
    """Let observers be called while a CUDA graph is captured, so that the graph contains what they compute."""
    _Captures.own = True
    try:
        yield
    finally:
        _Captures.own = False


def captured_elsewhere() -> bool:
    """Whether a CUDA graph was captured with a weight gradient but no observer in it: its replays call none.

    ``torch.compile(mode="reduce-overhead")`` captures such graphs.
    """
    return _Captures.others


def notify(token: Tensor | None, output_grad: Tensor, x: Tensor, *offsets: Tensor) -> None:
    """Pass the operands to the observer of this layer, if there is one.

    Not while someone else captures a graph: its replays would go on computing what the observer asked for once.
    """
    if token is None:
        return
    if token.is_cuda and not _Captures.own and torch.cuda.is_current_stream_capturing():
        _Captures.others = True
    elif _OBSERVERS:
        observer = _OBSERVERS.get(_number_of(token))
        if observer is not None:
            observer.add(output_grad, x, *offsets)


def is_observed(token: Tensor | None) -> bool:
    """Whether the layer of this token has an observer."""
    return token is not None and bool(_OBSERVERS) and _number_of(token) in _OBSERVERS


def _number_of(token: Tensor) -> int:
    """The layer's number; 0, which no layer has, where only a wait for the device could tell in a CUDA graph."""
    if token.is_cuda:
        number = _NUMBERS.get(token.data_ptr())
        if number is not None or torch.cuda.is_current_stream_capturing():
            return number or 0
    return int(token)
