"""A component with a memory of known contents behind its read port, so that it runs without a test bench."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Module
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component

from acf.rtl.design.primitives.wires import forward


class WithMemory(Component):
    """All ports of ``component`` but ``memory_address`` and ``memory_data``, which lead to ``contents``.

    The memory answers one cycle after the address, as block RAM does.
    """

    def __init__(self, component: Any, contents: Sequence[int]) -> None:
        self._component, self._contents = component, list(contents)
        members = dict(component.signature.members)
        super().__init__({name: member for name, member in members.items() if not name.startswith("memory_")})

    def elaborate(self, platform: object) -> Module:
        """Connect what is left of the ports one to one."""
        m = Module()
        m.submodules.component = inner = self._component
        width = len(inner.memory_data)
        depth = max(2, len(self._contents))
        m.submodules.memory = memory = Memory(shape=width, depth=depth, init=self._contents)
        port = memory.read_port()
        m.d.comb += [port.addr.eq(inner.memory_address), inner.memory_data.eq(port.data)]
        forward(m, self, inner, self.signature.members)
        return m
