"""A device with a memory at its bus, so that a program runs without a test bench that reacts."""

from amaranth.hdl import Module
from amaranth.lib.wiring import Component, connect

from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.wires import forward
from acf.rtl.device.device import Device
from acf.rtl.device.walking import WalkerOption
from acf.rtl.verify.benches.axi_memory import AxiMemory

_DEVICE_PORTS = ("s_axi", "interrupt_request")
_MEMORY_PORTS = ("latency", "load", "load_address", "load_data", "peek_address", "peek")


class DeviceBench(Component):
    """The registers of a `Device`, its interrupt, and the ports of an `AxiMemory` of ``beats`` beside its bus."""

    def __init__(self, sizes: FabricSizes, axi: AxiSpec, beats: int, walker: WalkerOption | None = None) -> None:
        self._device, self._memory = Device(sizes, axi, walker), AxiMemory(axi, beats)
        device, memory = self._device.signature.members, self._memory.signature.members
        super().__init__(
            {name: device[name] for name in _DEVICE_PORTS} | {name: memory[name] for name in _MEMORY_PORTS}
        )

    def elaborate(self, platform: object) -> Module:
        """Device and memory, connected."""
        m = Module()
        m.submodules.device = self._device
        m.submodules.memory = self._memory
        connect(m, self._device.m_axi, self._memory.bus)
        forward(m, self, self._device, _DEVICE_PORTS)
        forward(m, self, self._memory, _MEMORY_PORTS)
        return m
