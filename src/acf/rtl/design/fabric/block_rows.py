"""The rows of the block that an SCU holds."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import steered_word


class BlockRows(Component):
    """A register for each row of a block: ``row`` replaces row ``k`` where ``writes`` is 1.

    ``chosen`` is row ``k`` of the last cycle in which ``reads`` was 1.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.rows = sizes.shape.tile
        super().__init__(
            {
                "k": In(bits_for(self.rows - 1)),
                "writes": In(1),
                "row": In(16 * self.rows),
                "reads": In(1),
                "chosen": Out(16 * self.rows),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A word for each row, and multiplexers that switch on the way of the word alone."""
        m = Module()
        rows = [Signal(len(self.row), name=f"row_{k}", reset_less=True) for k in range(self.rows)]
        for k, word in enumerate(rows):
            with m.If(self.writes & (self.k == k)):
                m.d.sync += word.eq(self.row)
        m.d.comb += self.chosen.eq(steered_word(m, rows, self.k, self.reads, "row"))
        return m
