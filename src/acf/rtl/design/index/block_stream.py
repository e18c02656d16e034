"""The stream of a product's blocks by k_tile: one a cycle where entries lie in that order, else one in two cycles."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

WORD_BITS = 32


class BlockStream(Component):
    """``start`` visits the blocks of ``lines`` k_tiles; ``busy`` until the cycle of ``ends``, in which the last leaves.

    The index memory answers one cycle after ``memory_address``: offsets of k_tiles lie from ``offsets_base`` on, slots
    in order of k_tiles from ``slots_base``, entries of slots from ``entries_base``; if ``direct``, entries lie in
    order of k_tiles themselves. A block leaves when ``valid`` and ``ready`` meet: its ``entry`` and ``slot``, and the
    number ``line`` of its k_tile. The first k_tile costs two cycles beside its blocks, and so does every other one.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "direct": In(1),
                "lines": In(WORD_BITS),
                "offsets_base": In(WORD_BITS),
                "slots_base": In(WORD_BITS),
                "entries_base": In(WORD_BITS),
                "memory_address": Out(WORD_BITS),
                "memory_data": In(WORD_BITS),
                "ready": In(1),
                "valid": Out(1),
                "line": Out(WORD_BITS),
                "entry": Out(WORD_BITS),
                "slot": Out(WORD_BITS),
                "ends": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Both offsets of a k_tile, then its blocks: slot and entry, or the entry alone."""
        m, place, end, slot = Module(), Signal(WORD_BITS), Signal(WORD_BITS), Signal(WORD_BITS)
        m.d.comb += [self.entry.eq(self.memory_data), self.slot.eq(Mux(self.direct, place, slot))]
        with m.FSM(name="stream") as stream:
            with m.State("IDLE"):
                m.d.comb += self.memory_address.eq(self.offsets_base)
                m.d.sync += self.line.eq(0)
                with m.If(self.start):
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.sync += place.eq(self.memory_data)
                m.d.comb += self.memory_address.eq(self.offsets_base + 1)
                m.next = "LINE"
            with m.State("LINE"):
                m.d.sync += end.eq(self.memory_data)
                self._ask(m, place)
                with m.If(self.memory_data == place):
                    self._next_line(m)
            with m.State("FETCH"):
                m.d.comb += self.memory_address.eq(self.offsets_base + self.line + 1)
                m.next = "LINE"
            with m.State("SLOT"):
                m.d.sync += slot.eq(self.memory_data)
                m.d.comb += self.memory_address.eq(self.entries_base + self.memory_data)
                m.next = "ENTRY"
            with m.State("ENTRY"):
                m.d.comb += [self.valid.eq(1), self.memory_address.eq(self.entries_base + self.slot)]
                with m.If(self.ready):
                    m.d.sync += place.eq(place + 1)
                    self._ask(m, place + 1)
                    with m.If(place + 1 == end):
                        self._next_line(m)
            m.d.comb += self.busy.eq(~stream.ongoing("IDLE"))
        return m

    def _ask(self, m: Module, place: Value) -> None:
        """Ask for the block of a place: for its entry if that lies there, else for its slot first."""
        m.d.comb += self.memory_address.eq(Mux(self.direct, self.entries_base, self.slots_base) + place)
        m.next = "SLOT"
        with m.If(self.direct):
            m.next = "ENTRY"

    def _next_line(self, m: Module) -> None:
        m.d.sync += self.line.eq(self.line + 1)
        m.next = "FETCH"
        with m.If(self.line + 1 == self.lines):
            m.d.comb += self.ends.eq(1)
            m.next = "IDLE"
