"""`triton.jit` and its Gluon counterpart with types, so that kernels pass strict type checking."""

from collections.abc import Callable
from typing import Any

import triton


def jit(function: Callable[..., Any]) -> Any:
    """Compile ``function`` as a Triton kernel or device function on first use."""
    return triton.jit(function)


def gluon_jit(function: Callable[..., Any]) -> Any:
    """Compile ``function`` as a Gluon device function on first use."""
    from triton.experimental import gluon

    return gluon.jit(function)


def gluon_kernel(*integers: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as a Gluon kernel, without constants for those values of ``integers`` that are 1."""
    from triton.experimental import gluon

    return lambda function: gluon.jit(function, do_not_specialize=list(integers))
