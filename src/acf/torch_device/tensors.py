"""Kernels that every device needs: allocation, views, storages, resizing, and copies to and from the host."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from acf.torch_device.fallback import run_uncounted
from acf.torch_device.memory import device_storage, host_storage, host_view, is_on_device, redispatch, set_storage
from acf.torch_device.session import SESSION

DISPATCH_KEY = "PrivateUse1"

VIEWS = (
    "as_strided",
    "set_",
    "set_.source_Storage",
    "set_.source_Storage_storage_offset",
    "set_.source_Tensor",
    "view",
    "_reshape_alias",
)
"""Ops that only compute sizes: torch's kernels for the CPU serve the device."""

ALLOCATIONS = ("empty.memory_format", "empty_strided")


def _copy_from(source: Tensor, destination: Tensor, non_blocking: bool = False) -> Tensor:
    """``destination.copy_(source)`` where at least one is on the device."""
    host_source = host_view(source) if is_on_device(source) else source
    host_destination = host_view(destination) if is_on_device(destination) else destination
    host_destination.copy_(host_source)
    if not is_on_device(source):
        SESSION.count_copy("h2d", source.nbytes)
    elif not is_on_device(destination):
        SESSION.count_copy("d2h", source.nbytes)
    return destination


def _copy_from_and_resize(source: Tensor, destination: Tensor) -> Tensor:
    if destination.shape != source.shape:
        destination.resize_(source.shape)
    return _copy_from(source, destination)


def _local_scalar_dense(tensor: Tensor) -> Any:
    """``tensor.item()``: one number crosses the link."""
    SESSION.count_copy("d2h", tensor.element_size())
    return host_view(tensor).item()


def _resize(tensor: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """``tensor.resize_(size)``: new memory where the old is too small, the old values at its beginning."""
    offset, old = tensor.storage_offset(), tensor.untyped_storage()
    strides = torch.empty(size, device="meta", memory_format=memory_format or torch.contiguous_format).stride()
    like = torch.empty(0, dtype=tensor.dtype, device="meta").as_strided(size, strides, offset)
    nbytes = offset * tensor.element_size() + like.numel() * tensor.element_size()
    if nbytes <= old.nbytes():
        return set_storage(tensor, old, like)
    grown = torch.zeros(nbytes, dtype=torch.uint8)
    if old.nbytes():
        grown[: old.nbytes()] = torch.empty(0, dtype=torch.uint8).set_(host_storage(old))
    return set_storage(tensor, device_storage(grown.untyped_storage()), like)


def _pin_memory(tensor: Tensor, device: torch.device | None = None) -> Tensor:
    """A copy in memory that counts as pinned; the modelled link reads all host memory at its full rate."""
    pinned = tensor.clone()
    pinned.untyped_storage().acf_pinned = True  # type: ignore[attr-defined]
    return pinned


def _is_pinned(tensor: Tensor, device: torch.device | None = None) -> bool:
    return getattr(tensor.untyped_storage(), "acf_pinned", False)


KERNELS: dict[str, Callable[..., Any]] = {
    "_copy_from": _copy_from,
    "_copy_from_and_resize": _copy_from_and_resize,
    "_local_scalar_dense": _local_scalar_dense,
    "resize_": _resize,
}
"""Kernels of tensors on the device, by the name of their op in aten."""

HOST_KERNELS: dict[str, Callable[..., Any]] = {"_pin_memory": _pin_memory, "is_pinned": _is_pinned}
"""Kernels of tensors on the host, where `acf.torch_device.native_streams` has no allocator of pinned memory."""


def register_tensor_kernels(library: Any, pins_memory: bool) -> None:
    """Register everything of this module in ``library``, which implements aten.

    ``pins_memory``: also the kernels of pinned memory, for want of an allocator in C++.
    """
    for name in VIEWS:
        library.impl(name, partial(redispatch, overload(name)), DISPATCH_KEY)
    for name in ALLOCATIONS:
        library.impl(name, run_uncounted(overload(name)), DISPATCH_KEY)
    for name, kernel in KERNELS.items():
        library.impl(name, kernel, DISPATCH_KEY)
    for name, kernel in HOST_KERNELS.items() if pins_memory else ():
        library.impl(name, kernel, "CPU")


def overload(name: str) -> Any:
    """The overload of an aten op, such as ``empty.memory_format``."""
    packet, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), which or "default")
