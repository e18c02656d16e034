"""Memory of ``torch.device("acf")``: torch storages of that device over host memory that holds the device's bytes.

The devices of `acf.runtime` are modelled on the host, so the bytes of a tensor on the device lie in host memory. A
storage of the device points at them and keeps the host storage alive. Kernels take a host tensor over the same bytes.
"""

from threading import RLock
from typing import Any
from weakref import finalize

import torch
from torch import Tensor

NAME = "acf"
DEVICE_INDEX = 0

_CPU_KERNEL = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_SET_STORAGE: Any = torch.ops.aten.set_.source_Storage_storage_offset


def torch_device() -> torch.device:
    """``torch.device("acf:0")``; only after the registration."""
    return torch.device(NAME, DEVICE_INDEX)


def is_on_device(value: Any) -> bool:
    """Whether ``value`` is a tensor on the device."""
    return isinstance(value, Tensor) and value.device.type == NAME


class MemoryUse:
    """Bytes of live tensors on the device: now, and the most since the last reset."""

    def __init__(self) -> None:
        self.current = self.peak = 0
        self._lock = RLock()  # a finalizer may run inside any call

    def hold(self, host: torch.UntypedStorage) -> None:
        """Count the bytes of ``host`` as long as it lives."""
        self._change(host.nbytes())
        finalize(host, self._change, -host.nbytes())

    def reset_peak(self) -> None:
        """Let the peak begin from now."""
        self.peak = self.current

    def _change(self, nbytes: int) -> None:
        with self._lock:
            self.current += nbytes
            self.peak = max(self.peak, self.current)


MEMORY_USE = MemoryUse()


def device_storage(host: torch.UntypedStorage) -> torch.UntypedStorage:
    """A storage of the device over the bytes of ``host``, which it keeps alive."""
    storage: Any = torch._C._construct_storage_from_data_pointer(host.data_ptr(), torch_device(), host.nbytes())
    storage.acf_host = host
    MEMORY_USE.hold(host)
    return storage  # type: ignore[no-any-return]


def host_storage(storage: Any) -> torch.UntypedStorage:
    """The host memory behind a storage of the device."""
    host: torch.UntypedStorage = storage.acf_host
    return host


def with_storage(storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    """A tensor over ``storage``, with dtype, offset, sizes and strides of ``like``."""
    empty = torch._C._acc.create_empty_tensor((0,), like.dtype)
    return set_storage(empty, storage, like)


def redispatch(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run torch's kernel for the CPU over tensors of the device: for ops that only compute sizes."""
    return op.redispatch(_CPU_KERNEL, *args, **kwargs)


def set_storage(tensor: Tensor, storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    """``tensor`` itself, over ``storage`` with offset, sizes and strides of ``like``."""
    geometry = like.storage_offset(), list(like.shape), list(like.stride())
    moved: Tensor = redispatch(_SET_STORAGE, tensor, storage, *geometry)
    return moved


def to_device(host: Tensor) -> Tensor:
    """A tensor on the device over the bytes of ``host``, which belong to the device from now on."""
    return with_storage(device_storage(host.untyped_storage()), host)


def host_view(tensor: Tensor) -> Tensor:
    """A host tensor over the bytes of a tensor on the device, for kernels; it must not outlive the device's tensor.

    Its storage cannot be resized: a kernel that tried would leave the device's storage pointing at freed memory.
    """
    storage = tensor.untyped_storage()
    view = torch.empty(0, dtype=tensor.dtype)
    if not storage.nbytes():
        return view.as_strided(tensor.shape, tensor.stride())
    bytes_of_device: Any = torch._C._construct_storage_from_data_pointer(
        storage.data_ptr(), torch.device("cpu"), storage.nbytes()
    )
    return view.set_(bytes_of_device, tensor.storage_offset(), tensor.shape, tensor.stride())
