"""What a device runs on; `BACKENDS` has them by name."""

from acf.runtime.backends.backend import BACKENDS, Backend, make_backend

__all__ = ["BACKENDS", "Backend", "make_backend"]
