"""The fabric with its registers: what a host sees behind AXI4-Lite, and what memories connect to."""

from amaranth.hdl import Module
from amaranth.lib.wiring import Component

from acf.rtl.fabric.registers import RegisterFile
from acf.rtl.fabric.sizes import FabricSizes
from acf.rtl.fabric.top import Fabric
from acf.rtl.flow.parts import place

_BUS = ("aw", "w", "b", "ar", "r")


class Device(Component):
    """A `Fabric` whose control, commands and counters are registers; memories and results keep their ports."""

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        self._fabric = Fabric(sizes)
        self._registers = RegisterFile(sizes, self._fabric.command_bits)
        inside = self._registers.signature.members
        bus = {name: member for name, member in inside.items() if _is_bus(name)}
        outside = {
            name: member
            for name, member in self._fabric.signature.members.items()
            if name not in inside or name == "is_done"
        }
        super().__init__({**bus, **outside})

    def elaborate(self, platform: object) -> Module:
        """Connect by name."""
        m = Module()
        fabric = place(m, "fabric", self._fabric, "fabric")
        m.submodules.registers = registers = self._registers
        for name, member in registers.signature.members.items():
            inner = getattr(registers, name)
            outer = getattr(self if _is_bus(name) else fabric, name)
            is_input = member.flow.name == "In"
            m.d.comb += inner.eq(outer) if is_input else outer.eq(inner)
        for name, member in self.signature.members.items():
            if not _is_bus(name):
                inner, outer = getattr(fabric, name), getattr(self, name)
                m.d.comb += inner.eq(outer) if member.flow.name == "In" else outer.eq(inner)
        return m


def _is_bus(name: str) -> bool:
    return any(name == channel + signal for channel in _BUS for signal in ("valid", "ready", "addr", "data", "resp"))
