"""Compiling inner loops with numba, with their types kept for the checker."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` compiled on first use and cached on disk."""
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True)(function))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` compiled into each place that calls it: for parts of a step that share a state of many arrays."""
    return cast(Callable[P, R], numba.njit(inline="always", nogil=True)(function))
