"""The flat ports of a component: names as in the Verilog, widths and directions; and conversion to RTLIL with them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

WORD_BITS = 64
"""Bits of the words in which harnesses pass port values."""

SEPARATOR = "__"
"""Between the parts of a flat name; a bus signature may have a ``separator`` of its own."""


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
    """Every port of a component of at least one bit."""
    return [port for port in _all_ports(component) if port.width]


def convert_component(component: Any, module: str) -> str:
    """RTLIL of a component and its submodules; ``module`` is the name of the top module."""
    from amaranth.back import rtlil
    from amaranth.hdl._ir import PortDirection  # not public in 0.5, and an output that is never driven needs it

    directions = {True: PortDirection.Input, False: PortDirection.Output}
    ports = {port.name: (port.signal, directions[port.is_input]) for port in _all_ports(component)}
    text: str = rtlil.convert(component, name=module, ports=ports, emit_src=False)
    return text


def _all_ports(component: Any) -> Iterator[Port]:
    from amaranth.hdl import Value
    from amaranth.lib.wiring import Flow

    for path, member, value in component.signature.flatten(component):
        signal = Value.cast(value)
        yield Port(_flat_name(component.signature, path), len(signal), member.flow == Flow.In, signal)


def _flat_name(signature: Any, path: Sequence[str | int]) -> str:
    """The parts of a path, joined by the separators of the signatures on the way."""
    name, separator = "", ""
    for part in path:
        name += (SEPARATOR if isinstance(part, int) else separator) + str(part)
        if isinstance(part, str) and signature.members[part].is_signature:
            signature = signature.members[part].signature
            separator = getattr(signature, "separator", SEPARATOR)
    return name
