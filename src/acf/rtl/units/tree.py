"""Reductions as balanced trees: shallow logic, and no deep recursion while it is built."""

from collections.abc import Callable, Sequence

from amaranth.hdl import Value


def balanced(operation: Callable[[Value, Value], Value], values: Sequence[Value]) -> Value:
    """Combine values pairwise."""
    level = list(values)
    while len(level) > 1:
        pairs = [level[place : place + 2] for place in range(0, len(level), 2)]
        level = [operation(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]


def any_of(values: Sequence[Value]) -> Value:
    """Bitwise or of values of one width."""
    return balanced(lambda one, other: one | other, values)
