"""A device with a memory at each of its buses, so that a program runs without a test bench that reacts."""

from amaranth.hdl import Cat, Module
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out, connect

from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.design.primitives.wires import forward
from acf.rtl.device.device import Device
from acf.rtl.device.walking import WalkerOption
from acf.rtl.verify.benches.axi_memory import AxiMemory

_DEVICE_PORTS = ("s_axi", "interrupt_request")
_SHARED_PORTS = ("latency", "load_address", "load_data", "peek_address")


class DeviceBench(Component):
    """The registers of a `Device`, its interrupt, and an `AxiMemory` of ``beats`` behind each of its masters.

    ``load`` selects the memories that take ``load_data``; ``peek`` is what each of them shows. ``reading`` and
    ``writing`` are 1 for the masters whose bus moves a beat in this cycle.
    """

    def __init__(
        self,
        sizes: FabricSizes,
        axi: AxiSpec,
        beats: int,
        walker: WalkerOption | None = None,
        vector: str | None = None,
    ) -> None:
        self._device = Device(sizes, axi, walker, vector)
        self._memories = [AxiMemory(axi, beats) for _ in range(axi.masters)]
        device, memory = self._device.signature.members, self._memories[0].signature.members
        super().__init__(
            {
                **{name: device[name] for name in _DEVICE_PORTS},
                **{name: memory[name] for name in _SHARED_PORTS},
                "load": In(axi.masters),
                "peek": Out(data.ArrayLayout(axi.data_bits, axi.masters)),
                "reading": Out(axi.masters),
                "writing": Out(axi.masters),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Device and memories, connected."""
        m = Module()
        m.submodules.device = device = self._device
        for master, (bus, memory) in enumerate(zip(device.buses, self._memories, strict=True)):
            place(m, f"memory_{master}", memory, "axi_memory")
            connect(m, bus, memory.bus)
            forward(m, self, memory, _SHARED_PORTS)
            m.d.comb += [memory.load.eq(self.load[master]), self.peek[master].eq(memory.peek)]
        m.d.comb += [
            self.reading.eq(Cat(*(bus.rvalid & bus.rready for bus in device.buses))),
            self.writing.eq(Cat(*(bus.wvalid & bus.wready for bus in device.buses))),
        ]
        forward(m, self, device, _DEVICE_PORTS)
        return m
