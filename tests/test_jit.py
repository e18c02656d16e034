"""Compiling inner loops with numba."""

from typing import Any

import pytest

from acf import jit
from acf.jit import compiled, int64


def test_a_function_that_takes_a_loop_counter_is_compiled_once() -> None:
    @compiled
    def doubled(value: int) -> int:
        return 2 * value

    @compiled
    def total() -> int:
        cycle, found = int64(0), 0
        while cycle < 4:
            found += doubled(cycle)
            cycle += 1
        return found

    assert total() == 12
    callee: Any = doubled
    assert [str(types) for types in callee.signatures] == ["(int64,)"]


def test_a_cache_that_cannot_be_written_costs_a_warning_and_not_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(jit.FunctionCache, "save_overload", full)
    monkeypatch.setattr(jit.FunctionCache, "load_overload", full)
    doubled = jit.compiled(_double)
    with pytest.warns(jit.CompilerCacheWarning, match="cannot be kept .No space left on device."):
        assert doubled(21) == 42


def _double(value: int) -> int:
    return 2 * value
