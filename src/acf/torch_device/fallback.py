"""Ops without a program: they run on the host's kernels over the device's bytes, and are counted.

On the timeline their operands cross the host link, and their results cross it back.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from acf.torch_device.counters import COUNTERS
from acf.torch_device.errors import TorchDeviceError
from acf.torch_device.memory import NAME, host_view, is_on_device, set_storage, to_device, with_storage
from acf.torch_device.session import SESSION


@dataclass
class _Arguments:
    """The tensors of one call: host views of the arguments, by identity, and the device's tensors behind them."""

    views: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    results: dict[int, Tensor] = field(default_factory=dict)
    fresh: set[int] = field(default_factory=set)

    def to_host(self, value: Any) -> Any:
        """The argument with every tensor and device of ours replaced by the host's."""
        if is_on_device(value):
            view = host_view(value)
            self.views[id(view)] = view, value
            return view
        if isinstance(value, torch.device) and value.type == NAME:
            return torch.device("cpu")
        return _mapped(self.to_host, value)

    def to_output(self, value: Any) -> Any:
        """An ``out=`` argument; one of a single number gets memory of its own, as losses resize it on their way."""
        if not is_on_device(value) or value.numel() > 1:
            return self.to_host(value)
        fresh = torch.empty(0, dtype=value.dtype)
        self.views[id(fresh)] = fresh, value
        self.fresh.add(id(fresh))
        return fresh

    def to_device(self, value: Any) -> Any:
        """The result with every tensor on the device: an argument itself, a view of one, or a new tensor."""
        if not isinstance(value, Tensor):
            return _mapped(self.to_device, value)
        if id(value) in self.views:
            return self.views[id(value)][1]
        if id(value) not in self.results:
            source = self._source_of(value)
            self.results[id(value)] = (
                to_device(value) if source is None else with_storage(source.untyped_storage(), value)
            )
        return self.results[id(value)]

    def _source_of(self, value: Tensor) -> Tensor | None:
        """The argument that ``value`` is a view of."""
        place = value.untyped_storage().data_ptr()
        shared = (
            tensor for view, tensor in self.views.values() if place and view.untyped_storage().data_ptr() == place
        )
        return next(shared, None)

    def take_over_outputs(self) -> None:
        """Give ``out=`` arguments their values, and those that the kernel resized their geometry and storage."""
        for key, (view, tensor) in self.views.items():
            if view.shape == tensor.shape and view.stride() == tensor.stride():
                if key in self.fresh:
                    host_view(tensor).copy_(view)
                continue
            grown = key in self.fresh or (view.untyped_storage().nbytes() and not tensor.untyped_storage().nbytes())
            storage = to_device(view).untyped_storage() if grown else tensor.untyped_storage()
            set_storage(tensor, storage, view)

    @property
    def read_bytes(self) -> int:
        """Bytes of all arguments on the device."""
        return sum(view.nbytes for view, _ in self.views.values())


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """``function`` of every element of a list or tuple; other values as they are."""
    if isinstance(value, list | tuple):
        return type(value)(function(each) for each in value)
    return value


def run_on_host(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The boxed fallback of the device: any op, on the host's kernel, counted by name."""
    return _run(op, args, kwargs, counted=True)


def run_uncounted(op: Any) -> Callable[..., Any]:
    """A kernel for ops that touch no values, such as an allocation: the host's, not counted as a fallback."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _run(op, args, kwargs, counted=False)

    return kernel


def _run(op: Any, args: Sequence[Any], kwargs: dict[str, Any], counted: bool) -> Any:
    arguments = _Arguments()
    host_args = [arguments.to_host(value) for value in args]
    outputs = {each.name for each in op._schema.arguments if each.is_out}
    host_kwargs = {
        name: arguments.to_output(value) if name in outputs else arguments.to_host(value)
        for name, value in kwargs.items()
    }
    try:
        result = arguments.to_device(op(*host_args, **host_kwargs))
    except NotImplementedError as error:
        raise TorchDeviceError(
            f"{op} has neither a program nor a kernel for the host, so it cannot run on {NAME!r}; move its operands to "
            "the cpu for this op"
        ) from error
    arguments.take_over_outputs()
    if counted:
        written = sum(each.nbytes for each in _tensors(result))
        SESSION.count_copy("d2h", arguments.read_bytes)
        SESSION.count_copy("h2d", written)
        COUNTERS.add_fallback(str(op), arguments.read_bytes + written)
    return result


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors of a result."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
