"""Tiles as they arrive: flit by flit into a store, with a bitmap of their non-zeros at the last flit."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.fabric.csc_positions import CscPositions
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import wrapped


class TileReceiver(Component):
    """Addresses the flits of arriving tiles in a ring of ``places`` tiles.

    ``word`` is the address of the flit in the store. With a tile's last flit ``whole`` is 1, ``place`` is the tile's
    place in the ring and ``bitmap`` tells its non-zeros: part of the payload where the tile is packed, or decoded from
    the CSC form; computed else.
    """

    def __init__(self, sizes: FabricSizes, places: int) -> None:
        self.sizes, self.places = sizes, places
        super().__init__(
            {
                "valid": In(1),
                "last": In(1),
                "packed": In(1),
                "data": In(sizes.flit_bits),
                "word": Out(bits_for(places * sizes.tile_flits - 1)),
                "whole": Out(1),
                "place": Out(bits_for(places - 1)),
                "bitmap": Out(sizes.tile_values),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The bitmap is collected in parts, of as many bits as a flit has values."""
        m, sizes = Module(), self.sizes
        flit, place = Signal(range(max(2, sizes.tile_flits))), Signal(range(max(2, self.places)))
        m.d.comb += [
            self.word.eq(place * sizes.tile_flits + flit),
            self.place.eq(place),
            self.whole.eq(self.valid & self.last),
        ]
        with m.If(self.valid):
            m.d.sync += flit.eq(Mux(self.last, 0, flit + 1))
            with m.If(self.last):
                m.d.sync += place.eq(wrapped(place + 1, self.places))
        positions = self._positions(m, flit) if sizes.is_csc else None
        width = sizes.flit_values
        seen = Cat(*(self.data[16 * index : 16 * index + 15].any() for index in range(width)))
        for part in range(sizes.tile_flits):
            kept = Signal(width, name=f"part_{part}")
            sent = self.data[part % 16 * width :][:width]
            now = self.bitmap[part * width :][:width]
            m.d.comb += now.eq(kept)
            if positions is not None:
                with m.If(self.valid & self.packed):
                    m.d.comb += now.eq(positions[part * width :][:width] | Mux(flit == 0, 0, kept))
            else:
                with m.If(self.valid & self.packed & (flit == part // 16)):
                    m.d.comb += now.eq(sent)
            with m.If(self.valid & ~self.packed & (flit == part)):
                m.d.comb += now.eq(seen)
            with m.If(self.valid):  # without a flit nothing changes; said here, so that the clock can be gated
                m.d.sync += kept.eq(now)
        return m

    def _positions(self, m: Module, flit: Signal) -> Value:
        """The part of the bitmap that a flit of a tile in CSC form tells."""
        m.submodules.positions = positions = CscPositions(self.sizes)
        m.d.comb += [
            positions.valid.eq(self.valid & self.packed),
            positions.flit.eq(flit),
            positions.data.eq(self.data),
        ]
        return positions.bitmap
