"""The error of offloading."""

from acf.errors import AcfError


class OffloadError(AcfError, ValueError):
    """A model, or what it was called with, cannot run on a device."""
