"""A fabric with a memory behind every controller, loaded and run without a test bench."""

from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, connect
from amaranth.utils import bits_for

from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.fabric.top import Fabric
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.design.primitives.wires import forward
from acf.rtl.verify.benches.flit_memory import FlitMemory

_BENCH_PORTS = ("memories", "load_address", "load_words")
"""Ports of the fabric that the bench drives itself."""


class FabricBench(Component):
    """All ports of `Fabric` but those of its memories; ``load_word`` goes to all lines.

    ``load_flit`` and ``load_ticks`` choose lines whose memory takes ``load_data`` at ``load_address``.
    """

    def __init__(self, sizes: FabricSizes, counts: bool | None = None) -> None:
        self.sizes, self._fabric = sizes, Fabric(sizes, counts)
        shape = sizes.shape
        lines = shape.mesh_rows + shape.mesh_columns
        members = {name: member for name, member in self._fabric.signature.members.items() if name not in _BENCH_PORTS}
        address = max(bits_for(sizes.command_depth), bits_for(sizes.memory_flits - 1))
        super().__init__(
            {
                **members,
                "load_word": In(self._fabric.command_bits),
                "load_address": In(address),
                "load_flit": In(lines),
                "load_ticks": In(lines),
                "load_data": In(sizes.flit_bits),
                "outside_cycles": In(16),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect what is left of the ports one to one."""
        m = Module()
        m.submodules.fabric = fabric = self._fabric
        for line in range(len(self.load_flit)):
            memory = place(m, f"memory_{line}", FlitMemory(self.sizes), "flit_memory")
            m.d.comb += [
                memory.run.eq(self.run),
                fabric.load_words[line].eq(self.load_word),
                memory.load.eq(self.load_flit[line]),
                memory.load_ticks.eq(self.load_ticks[line]),
                memory.load_address.eq(self.load_address),
                memory.load_data.eq(self.load_data),
                memory.outside_cycles.eq(self.outside_cycles),
            ]
            connect(m, fabric.memories[line], memory.port)
        m.d.comb += fabric.load_address.eq(self.load_address)
        forward(m, self, fabric, [name for name in fabric.signature.members if name not in _BENCH_PORTS])
        return m
