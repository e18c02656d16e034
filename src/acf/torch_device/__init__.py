"""Level two of PyTorch on the fabric: ``torch.device("acf")``, registered at PrivateUse1.

Kernels are in Python. Streams, events and pinned memory take a small C++ library, compiled on first use.

>>> from acf import torch_device
>>> torch_device.register()  # doctest: +SKIP
>>> model.to("acf")  # doctest: +SKIP
"""

from acf.runtime import Device
from acf.torch_device.counters import COUNTERS, Fallback
from acf.torch_device.errors import TorchDeviceError
from acf.torch_device.native_streams import TorchDeviceWarning
from acf.torch_device.registration import is_registered, register
from acf.torch_device.session import SESSION

__all__ = [
    "Fallback",
    "TorchDeviceError",
    "TorchDeviceWarning",
    "fallbacks",
    "is_registered",
    "register",
    "reset_fallbacks",
    "runtime_device",
]

fallbacks = COUNTERS.fallbacks
reset_fallbacks = COUNTERS.reset


def runtime_device() -> Device:
    """The `acf.runtime.Device` that products run on."""
    return SESSION.engine.device
