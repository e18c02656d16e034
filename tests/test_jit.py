"""Compiling inner loops with numba."""

from typing import Any

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
