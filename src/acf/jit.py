"""Compiling inner loops with numba, with their types kept for the checker."""

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.options import DefaultOptions
from numba.core.sigutils import normalize_signature

from acf.code_cache import SharedCacheWarning, code_directory, is_private, locked

P = ParamSpec("P")
R = TypeVar("R")

UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
"""numba's option for functions without reference counts, where this numba has it."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` compiled on first use and cached on disk, where there is a place for it."""
    return _compiled(function)


def _compiled(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    dispatcher: Any = numba.njit(nogil=True, **options)(function)
    made = _cache_of(function)
    if made is not None:
        dispatcher._cache = made
    return cast(Callable[P, R], dispatcher)


class CompilerCacheWarning(UserWarning):
    """Loops that numba compiled cannot be kept on disk."""


class _ForgivingCache(FunctionCache):
    """numba's cache; what it cannot read or write, damaged files or a full disk, is compiled anew and not kept.

    numba numbers the files of a function's signatures by its index. Of two processes that save at once, each may take
    the same number for another signature, and later ones would call the code of the wrong one: here one saves at a
    time, and code of another signature is not loaded.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found: Any = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
            types, _ = normalize_signature(sig)  # type: ignore[no-untyped-call]
            return found if found is None or tuple(found.signature.args) == tuple(types) else None
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            with locked(Path(self.cache_path) / ".acf.lock"):
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except Exception as error:
            warnings.warn(
                f"acf: compiled loops cannot be kept ({error}), so every process compiles them again; make room, or "
                "name a folder in $NUMBA_CACHE_DIR",
                CompilerCacheWarning,
                stacklevel=2,
            )


def _cache_of(function: Any) -> Any:
    """Beside the source or in the user's cache, as numba does; else in ours; None where neither can be written."""
    with suppress(RuntimeError):  # no place beside the source, and no home
        made: Any = _ForgivingCache(function)  # type: ignore[no-untyped-call]
        if _is_beside(made.cache_path, function) or _is_own(made.cache_path):
            return made
    settings = vars(numba.config)
    earlier, settings["CACHE_DIR"] = settings["CACHE_DIR"], str(code_directory("numba"))
    try:
        return _ForgivingCache(function)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
    finally:
        settings["CACHE_DIR"] = earlier


def _is_beside(folder: str, function: Any) -> bool:
    """Whether the cache lies with the source: who may write there may change the source as well."""
    return Path(folder).is_relative_to(Path(function.__code__.co_filename).parent)


@cache
def _is_own(folder: str) -> bool:
    """Whether only this user and root have written to the folder and may; numba unpickles what it finds there."""
    with os.scandir(folder) as entries:
        owners = {each.stat(follow_symlinks=False).st_uid for each in entries}
    if owners <= {os.getuid(), 0} and is_private(Path(folder)):
        return True
    warnings.warn(
        f"acf: other users may write to {folder}, so compiled loops are not kept there; chmod go-w it and the folders "
        "above, or name another folder in $NUMBA_CACHE_DIR",
        SharedCacheWarning,
        stacklevel=5,
    )
    return False


@compiled
def int64(value: int) -> int:
    """``value`` for a loop counter that is passed to compiled functions: they are compiled once.

    numba gives a counter that starts at 0 the type of the literal 0 first, compiles every function that takes it for
    that type, and compiles them again once it has seen that the counter changes.
    """
    return int(np.int64(value))


def compiled_in_place(function: Callable[P, R]) -> Callable[P, R]:
    """`compiled`, for loops over records of arrays that allocate none: arrays are not reference-counted.

    numba counts a reference, atomically, whenever a field of a NamedTuple is read, which took most of the time of such
    loops. Allocating an array inside is refused when it compiles.
    """
    return _compiled(function, **UNCOUNTED)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` compiled into each place that calls it: for parts of a step that share a state of many arrays."""
    return cast(Callable[P, R], numba.njit(inline="always", nogil=True)(function))
