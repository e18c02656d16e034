"""A device with a memory at its master, loaded and run without a test bench."""

from amaranth.hdl import Module
from amaranth.lib.wiring import Component, Out

from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.device import MASTER, SLAVE, Device
from acf.rtl.device.registers import slave_ports
from acf.rtl.verify.benches.axi_memory import AxiMemory

_MEMORY_PORTS = ("latency", "load", "load_address", "load_data", "peek_address", "peek")


class DeviceBench(Component):
    """The registers of a `Device`, its interrupt, and the side of `AxiMemory` (``beats`` large) that is not the bus."""

    def __init__(self, sizes: FabricSizes, axi: AxiSpec, beats: int) -> None:
        self.axi = axi
        self._device, self._memory = Device(sizes, axi), AxiMemory(axi, beats)
        inside = self._memory.signature.members
        super().__init__(
            {
                **{SLAVE + name: port for name, port in slave_ports().items()},
                **{name: inside[name] for name in _MEMORY_PORTS},
                "interrupt_request": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect by name."""
        m = Module()
        m.submodules.device = device = self._device
        m.submodules.memory = memory = self._memory
        m.d.comb += self.interrupt_request.eq(device.interrupt_request)
        for name, port in slave_ports().items():
            inner, outer = getattr(device, SLAVE + name), getattr(self, SLAVE + name)
            m.d.comb += inner.eq(outer) if port.flow.name == "In" else outer.eq(inner)
        for name in _MEMORY_PORTS:
            inner, outer = getattr(memory, name), getattr(self, name)
            m.d.comb += outer.eq(inner) if name == "peek" else inner.eq(outer)
        for name, port in (self.axi.read_ports() | self.axi.write_ports()).items():
            master, slave = getattr(device, MASTER + name), getattr(memory, name)
            m.d.comb += slave.eq(master) if port.flow.name == "Out" else master.eq(slave)
        return m
