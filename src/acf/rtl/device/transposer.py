"""Transposes dense tiles on their way from memory, so that one copy of a weight serves forward and backward pass."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.fabric.sizes import FabricSizes


class TileTransposer(Component):
    """Takes the flits of a dense tile, ``tile_flits`` with ``valid``, and gives those of its transpose.

    ``busy`` begins in the cycle after the last flit and lasts as many cycles as a tile has flits: in each of them
    ``transposed`` is the next flit, with ``last`` the last one. While ``busy`` no flit may come.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        super().__init__(
            {
                "valid": In(1),
                "flit": In(sizes.flit_bits),
                "busy": Out(1),
                "transposed": Out(sizes.flit_bits),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A register for every value of a tile, written by rows and read by columns."""
        m, sizes = Module(), self.sizes
        side, flits = sizes.shape.tile, sizes.tile_flits
        values = [Signal(16, name=f"value_{place}") for place in range(sizes.tile_values)]
        index = Signal(range(max(2, flits)))
        m.d.comb += self.last.eq(self.busy & (index == flits - 1))
        for number in range(flits):
            along = range(number * sizes.flit_values, (number + 1) * sizes.flit_values)
            with m.If(self.valid & (index == number)):
                m.d.sync += [values[place].eq(self.flit.word_select(place - along[0], 16)) for place in along]
            with m.If(index == number):
                m.d.comb += self.transposed.eq(Cat(*(values[place % side * side + place // side] for place in along)))
        with m.If(self.valid | self.busy):
            m.d.sync += index.eq(index + 1)
            with m.If(index == flits - 1):
                m.d.sync += [index.eq(0), self.busy.eq(self.valid)]
        return m
