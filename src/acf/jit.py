"""Compiling inner loops with numba, with their types kept for the checker."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` compiled on first use and cached on disk."""
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True)(function))


@compiled
def int64(value: int) -> int:
    """``value`` for a loop counter that is passed to compiled functions: they are compiled once.

    numba gives a counter that starts at 0 the type of the literal 0 first, compiles every function that takes it for
    that type, and compiles them again once it has seen that the counter changes.
    """
    return int(np.int64(value))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` compiled into each place that calls it: for parts of a step that share a state of many arrays."""
    return cast(Callable[P, R], numba.njit(inline="always", nogil=True)(function))
