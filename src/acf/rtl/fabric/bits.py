"""Small combinational pieces: the lowest bit that is set, counting bits, numbers that wrap."""

from collections.abc import Callable, Sequence
from functools import reduce

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value


def lowest_set(bits: Sequence[Value] | Value) -> Value:
    """Index of the lowest bit that is set; 0 where none is."""
    return _search([bits[index] for index in range(len(bits))])[1]


def _search(bits: list[Value]) -> tuple[Value, Value]:
    """Whether any bit is set, and the index of the lowest, by halves."""
    if len(bits) == 1:
        return bits[0], Const(0, 1)
    half = 1 << ((len(bits) - 1).bit_length() - 1)
    low_any, low = _search(bits[:half])
    high_any, high = _search(bits[half:])
    return low_any | high_any, Mux(low_any, low, high + half)


def clear_lowest(bits: Value) -> Value:
    """``bits`` without the lowest that is set."""
    return (bits & (bits - 1))[: len(bits)]


def balanced(operation: Callable[[Value, Value], Value], values: Sequence[Value]) -> Value:
    """Combine values pairwise, so that a long list makes a shallow tree."""
    level = list(values)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [operation(one, other) for one, other in pairs] + level[len(level) // 2 * 2 :]
    return level[0]


def count_ones(bits: Value) -> Value:
    """How many bits are set."""
    return balanced(lambda one, other: one + other, [bits[index] for index in range(len(bits))])


def any_of(values: Sequence[Value]) -> Value:
    """Whether one of them is set."""
    return balanced(lambda one, other: one | other, values)


def all_of(values: Sequence[Value]) -> Value:
    """Whether all of them are set."""
    return balanced(lambda one, other: one & other, values)


def delayed(m: Module, value: Value, cycles: int, name: str) -> Value:
    """``value`` as it was ``cycles`` ago; registers without reset, so that shift-register LUTs can hold it."""
    for place in range(cycles):
        stage = Signal.like(value, name=f"{name}_{place}", reset_less=True)
        m.d.sync += stage.eq(value)
        value = stage
    return value


def wrapped(number: Value, limit: int) -> Value:
    """``number`` below ``2 * limit`` brought below ``limit``."""
    return Mux(number >= limit, number - limit, number)


def joined(values: Sequence[Value]) -> Value:
    """Values side by side, the first lowest."""
    return Cat(*values)


def masked(bits: Value, keep: Value) -> Value:
    """``bits`` where ``keep`` is 1, else 0."""
    return bits & keep.replicate(len(bits))


def any_masked(pairs: Sequence[tuple[Value, Value]]) -> Value:
    """The value whose condition holds, of (condition, value) pairs of which at most one does."""
    return reduce(lambda one, other: one | other, [masked(value, condition) for condition, value in pairs])
