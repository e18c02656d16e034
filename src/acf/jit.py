"""Compiling inner loops with numba, with their types kept for the checker."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core.options import DefaultOptions

P = ParamSpec("P")
R = TypeVar("R")

UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
"""numba's option for functions without reference counts, where this numba has it."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` compiled on first use and cached on disk."""
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True)(function))


def compiled_in_place(function: Callable[P, R]) -> Callable[P, R]:
    """`compiled`, for loops over records of arrays that allocate none: arrays are not reference-counted.

    numba counts a reference, atomically, whenever a field of a NamedTuple is read, which took most of the time of such
    loops. Allocating an array inside is refused when it compiles.
    """
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True, **UNCOUNTED)(function))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` compiled into each place that calls it: for parts of a step that share a state of many arrays."""
    return cast(Callable[P, R], numba.njit(inline="always", nogil=True)(function))
