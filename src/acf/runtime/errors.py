"""Errors of the runtime, named after the CUDA errors that a user knows; each gives value, rule and remedy."""

from acf.errors import AcfError


class DeviceError(AcfError, RuntimeError):
    """Base of the runtime's errors. The device stays usable after every one of them."""


class InvalidValueError(DeviceError, ValueError):
    """An argument is outside its range, or does not fit the program or the other arguments."""


class InvalidDeviceError(DeviceError, ValueError):
    """No backend has that name, or the backend cannot run the Spec that was given."""


class NoDeviceError(DeviceError):
    """The machine lacks what the backend needs: a GPU, or the tools of the RTL flow."""


class MemoryAllocationError(DeviceError, MemoryError):
    """Device memory has no free range of the size that was asked for."""


class InvalidDevicePointerError(DeviceError, ValueError):
    """A buffer was freed already, or belongs to another device."""


class InvalidResourceHandleError(DeviceError, ValueError):
    """A stream or an event belongs to another device."""


class IllegalAddressError(DeviceError, IndexError):
    """A copy, a region or a launch reaches beyond the end of a buffer."""


class NotReadyError(DeviceError):
    """The time of an event was asked for before the event was recorded and reached."""


class NotSupportedError(DeviceError, NotImplementedError):
    """The device cannot run such a product."""


class InvalidImageError(DeviceError, ValueError):
    """Bytes that should be a program or a recording are damaged or of another version."""


class NoBinaryForDeviceError(DeviceError, ValueError):
    """The program was compiled for another fabric."""


class LaunchFailureError(DeviceError):
    """An operation failed while it ran; raised by the next synchronisation."""
