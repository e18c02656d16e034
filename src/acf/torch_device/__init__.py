"""Level two of PyTorch on the fabric: ``torch.device("acf")``, registered at PrivateUse1 in pure Python.

>>> from acf import torch_device
>>> torch_device.register()  # doctest: +SKIP
>>> model.to("acf")  # doctest: +SKIP
"""

from acf.runtime import Device
from acf.torch_device.counters import COUNTERS, Fallback
from acf.torch_device.errors import TorchDeviceError
from acf.torch_device.registration import is_registered, register
from acf.torch_device.session import SESSION

__all__ = [
    "Fallback",
    "TorchDeviceError",
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
