"""Reductions as balanced trees: shallow logic, and no deep recursion while it is built."""

from collections.abc import Sequence

from amaranth.hdl import Value


def any_of(values: Sequence[Value]) -> Value:
    """Bitwise or of values of one width."""
    level = list(values)
    while len(level) > 1:
        pairs = [level[place : place + 2] for place in range(0, len(level), 2)]
        level = [pair[0] | pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]
