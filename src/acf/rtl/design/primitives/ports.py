"""The flat ports of a component: names as in the Verilog, widths and directions."""

from dataclasses import dataclass
from typing import Any

WORD_BITS = 64
"""Bits of the words in which harnesses pass port values."""


@dataclass(frozen=True, eq=False)
class Port:
    """A port by its flat name, ``width`` bits; ``signal`` is Amaranth's, ``words`` its columns in an array."""

    name: str
    width: int
    is_input: bool
    signal: Any

    @property
    def words(self) -> int:
        """Words of 64 bits that hold a value."""
        return -(-self.width // WORD_BITS)


def ports_of(component: Any) -> list[Port]:
    """Every port of a component, names of nested interfaces joined by two underscores as in the Verilog."""
    from amaranth.hdl import Value
    from amaranth.lib.wiring import Flow

    found = []
    for path, member, value in component.signature.flatten(component):
        signal = Value.cast(value)
        if len(signal):
            found.append(Port("__".join(map(str, path)), len(signal), member.flow == Flow.In, signal))
    return found
