"""`triton.jit` with a type, so that kernels pass strict type checking."""

from collections.abc import Callable
from typing import Any

import triton


def jit(function: Callable[..., Any]) -> Any:
    """Compile ``function`` as a Triton kernel or device function on first use."""
    return triton.jit(function)
