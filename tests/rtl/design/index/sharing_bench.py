"""Controllers that share a product with a memory of known contents behind each of their read ports."""

from collections.abc import Sequence

from amaranth.hdl import Module
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.index.index_controller import IndexSizes
from acf.rtl.design.index.sharing_controllers import SharingControllers
from acf.rtl.design.primitives.wires import forward


class SharingBench(Component):
    """``start`` runs the product in ``contents``; ``word_n`` is the command of controller n."""

    def __init__(self, sizes: IndexSizes, contents: Sequence[int]) -> None:
        self._sizes, self._contents = sizes, list(contents)
        lines = sizes.fabric.shape.mesh_rows + sizes.fabric.shape.mesh_columns
        ports = {"start": In(1), "ready": In(lines), "valid": Out(lines), "gaps": Out(lines), "busy": Out(1)}
        words = {f"word_{number}": Out(sizes.command_bits) for number in range(sizes.sharing)}
        super().__init__(ports | words)

    def elaborate(self, platform: object) -> Module:
        """A memory for every controller, all with the same contents."""
        m = Module()
        m.submodules.controllers = inner = SharingControllers(self._sizes)
        forward(m, self, inner, ["start", "ready", "valid", "gaps", "busy"])
        for number in range(self._sizes.sharing):
            memory = Memory(shape=32, depth=max(2, len(self._contents)), init=self._contents)
            m.submodules[f"memory_{number}"] = memory
            port = memory.read_port()
            m.d.comb += [
                port.addr.eq(inner.memory_address[number]),
                inner.memory_data[number].eq(port.data),
                getattr(self, f"word_{number}").eq(inner.words[number]),
            ]
        return m
