"""Registering ``torch.device("acf")`` at PrivateUse1, torch's door for devices that it does not know."""

from typing import Any

import torch
from torch.utils import backend_registration

from acf.runtime import Device
from acf.torch_device import backend_module
from acf.torch_device.autocast import AUTOCAST_KEY, register_autocast_kernels
from acf.torch_device.errors import TorchDeviceError
from acf.torch_device.fallback import run_on_host
from acf.torch_device.memory import DEVICE_INDEX, NAME, device_storage
from acf.torch_device.native_streams import connect_streams
from acf.torch_device.products import register_products
from acf.torch_device.session import SESSION
from acf.torch_device.streams import DEFAULT_STREAM, stream_of
from acf.torch_device.tensors import DISPATCH_KEY, overload, register_tensor_kernels

_SETUP = "_setup_privateuseone_for_python_backend"
_DESERIALISER_PRIORITY = 5  # before torch's own, which asks for an allocator in C++
_LIBRARIES: list[Any] = []


def register(device: Device | None = None) -> None:
    """Make ``torch.device("acf")`` known to torch; products run on ``device``, "sim" if none is given.

    Called again, it only changes the device. ``tensor.to("acf")`` and ``model.to("acf")`` work from then on.
    """
    if not _LIBRARIES:
        _register()
    if device is not None:
        SESSION.use(device)
        torch.accelerator.set_stream(_default_stream())


def is_registered() -> bool:
    """Whether `register` was called in this process."""
    return bool(_LIBRARIES)


def _register() -> None:
    setup = getattr(backend_registration, _SETUP, None)
    if setup is None or not hasattr(torch._C, "_acc"):
        raise TorchDeviceError(
            f"torch {torch.__version__} has no {_SETUP}, by which torch 2.13 registers a device from Python; "
            "run the layers on a device with acf.offload(model, device), which needs no registration"
        )
    taken = torch._C._get_privateuse1_backend_name()
    if taken != "privateuseone":
        raise TorchDeviceError(
            f"PrivateUse1 is already the device {taken!r} of another package, and torch has one such device in a "
            "process; use acf.offload(model, device), or a process without that package"
        )
    connected = _set_up(setup)
    torch.serialization.register_package(_DESERIALISER_PRIORITY, _location_of, _restore)
    everything: Any = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    everything.fallback(run_on_host, DISPATCH_KEY)
    everything.fallback(torch.library.fallthrough_kernel, AUTOCAST_KEY)
    aten: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    register_tensor_kernels(aten, pins_memory=not connected)
    register_autocast_kernels(aten, overload)
    own = register_products(aten)
    _LIBRARIES.extend((everything, aten, own))


def _set_up(setup: Any) -> bool:
    """Name the device and register guard and hooks: in C++ where that can be built, else torch's in Python.

    Returns whether streams, events and pinned memory are connected.
    """
    backend_registration.rename_privateuse1_backend(NAME)
    if not connect_streams():
        setup(rename=NAME, backend_module=backend_module)
        return False
    backend_registration.generate_methods_for_privateuse1_backend()
    torch._register_device_module(NAME, backend_module)  # type: ignore[no-untyped-call]
    SESSION.stream_of_thread = lambda: stream_of(torch._C._accelerator_getStream(DEVICE_INDEX).stream_id)
    return True


def _default_stream() -> torch.Stream:
    """The stream that products run in unless another is chosen, as torch knows it."""
    kind: Any = torch._C._autograd.DeviceType.PrivateUse1
    return torch.Stream(stream_id=DEFAULT_STREAM, device_index=DEVICE_INDEX, device_type=int(kind))


def _location_of(storage: Any) -> str | None:
    """What a file of `torch.save` says of where a storage was."""
    return f"{NAME}:{storage.device.index or 0}" if storage.device.type == NAME else None


def _restore(storage: Any, location: str) -> Any:
    """A storage of a file where `torch.load` wants it; None: somewhere else."""
    if location.partition(":")[0] != NAME:
        return None
    if storage.device.type == NAME:
        return storage
    return device_storage(storage.clone())
