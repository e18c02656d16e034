"""Positions of non-zeros in tiles of CSC form: a bitmap from counts of lines and places within them."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.lowering.tile_format import place_bits
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import below


class CscPositions(Component):
    """The part of a tile's bitmap that flit number ``flit`` tells, in the cycle of its arrival.

    Counts of lines come with the first flit and are kept for those that follow. Places lie behind all values, so
    their first bit may be at any multiple of 16 bits; a flit is cut into places of which those of a line are
    neighbours. ``bitmap`` is 0 where the flit tells nothing.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        super().__init__(
            {
                "valid": In(1),
                "flit": In(range(max(2, sizes.tile_flits))),
                "data": In(sizes.flit_bits),
                "bitmap": Out(sizes.tile_values),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """By line the places of this flit that are its own; by place the column that it names."""
        m, tile, bits = Module(), self.sizes.shape.tile, place_bits(self.sizes.shape.tile)
        reaches = self._reaches(m)
        places = [self.data[at : at + bits] for at in range(0, self.sizes.flit_bits, bits)]
        names = [Signal(len(places), name=f"names_{column}") for column in range(tile)]
        for column, named in enumerate(names):
            m.d.comb += named.eq(Cat(*(place == column for place in places)))
        for line in range(tile):
            own = Signal(len(places), name=f"own_{line}")
            m.d.comb += own.eq(reaches[line + 1] & ~reaches[line])
            for column, named in enumerate(names):
                m.d.comb += self.bitmap[line * tile + column].eq((own & named).any())
        return m

    def _reaches(self, m: Module) -> list[Signal]:
        """Which places of this flit lie before each line's first one, and before the end of all."""
        sizes, bits = self.sizes, place_bits(self.sizes.shape.tile)
        lanes, ends = sizes.flit_bits // bits, self._ends(m)
        most = sizes.tile_values * (1 + 16 // bits) + 8 * sizes.shape.tile // bits
        first = Signal(signed(bits_for(max(most, sizes.tile_flits * lanes)) + 1), name="first_place")
        m.d.comb += first.eq((ends[-1] << 2) + 8 * sizes.shape.tile // bits - self.flit * lanes)
        found = []
        for line in range(sizes.shape.tile + 1):
            begin = Signal.like(first, name=f"begin_{line}")
            within, before = Signal(bits_for(lanes), name=f"within_{line}"), Signal(lanes, name=f"before_{line}")
            m.d.comb += [
                begin.eq(first + (ends[line - 1] if line else 0)),
                within.eq(Mux(begin < 0, 0, Mux(begin > lanes, lanes, begin))),
                before.eq(below(within, lanes)),
            ]
            found.append(before)
        return found

    def _ends(self, m: Module) -> list[Value]:
        """Non-zeros up to the end of every line; with the first flit from its bytes, then as kept."""
        tile, is_first = self.sizes.shape.tile, Signal()
        m.d.comb += is_first.eq(self.flit == 0)
        ends: list[Value] = []
        told: Value | None = None
        for line in range(tile):
            count = self.data[8 * line : 8 * line + bits_for(tile)]
            summed, kept, end = (
                Signal(bits_for(self.sizes.tile_values), name=f"{name}_{line}") for name in ("summed", "kept", "end")
            )
            m.d.comb += [summed.eq(count if told is None else told + count), end.eq(Mux(is_first, summed, kept))]
            with m.If(self.valid & is_first):
                m.d.sync += kept.eq(summed)
            told = summed
            ends.append(end)
        return ends
