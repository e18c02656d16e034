"""The controllers that share a product, side by side: each makes the commands of its own lines."""

from amaranth.hdl import Module
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.index.block_stream import WORD_BITS
from acf.rtl.design.index.index_controller import IndexController, IndexSizes
from acf.rtl.design.primitives.bits import all_of, any_of


class SharingControllers(Component):
    """``start`` runs the product of the memory; ``busy`` until every controller has offered its last command.

    Each controller has a read port of the memory, as `IndexController` does. ``valid`` tells the lines that a command
    is for, ``words`` has that of every controller; ``gaps``: it is for the adder behind the line alone.
    """

    def __init__(self, sizes: IndexSizes) -> None:
        self.sizes = sizes
        shape = sizes.fabric.shape
        lines = shape.mesh_rows + shape.mesh_columns
        super().__init__(
            {
                "start": In(1),
                "memory_address": Out(data.ArrayLayout(WORD_BITS, sizes.sharing)),
                "memory_data": In(data.ArrayLayout(WORD_BITS, sizes.sharing)),
                "ready": In(lines),
                "valid": Out(lines),
                "gaps": Out(lines),
                "words": Out(data.ArrayLayout(sizes.command_bits, sizes.sharing)),
                "busy": Out(1),
                "is_refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Every controller with its port, and what they tell each other."""
        m = Module()
        controllers = [IndexController(self.sizes, number) for number in range(self.sizes.sharing)]
        for number, controller in enumerate(controllers):
            m.submodules[f"controller_{number}"] = controller
            m.d.comb += [
                self.memory_address[number].eq(controller.memory_address),
                controller.memory_data.eq(self.memory_data[number]),
                controller.ready.eq(self.ready),
                controller.start.eq(self.start),
                controller.others_joined.eq(any_of([each.joined for each in controllers])),
                controller.all_wait.eq(all_of([each.waits for each in controllers])),
                self.words[number].eq(controller.word),
            ]
        for line in range(len(self.valid)):
            controller = controllers[self.sizes.share_of(line)]
            m.d.comb += self.valid[line].eq(controller.valid & (controller.line == line))
            m.d.comb += self.gaps[line].eq(controller.is_gap)
        m.d.comb += [
            self.busy.eq(any_of([each.busy for each in controllers])),
            self.is_refused.eq(controllers[0].is_refused),  # all refuse alike
        ]
        return m
