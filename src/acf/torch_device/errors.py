"""The error of the torch device."""

from acf.errors import AcfError


class TorchDeviceError(AcfError, RuntimeError):
    """``torch.device("acf")`` cannot be registered with this torch, or cannot do what was asked."""
