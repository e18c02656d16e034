"""The error of offloading."""

from acf.errors import AcfError


class OffloadError(AcfError, ValueError):
    """A model has nothing that could run on a device."""
