"""Words of 32 bits to memory, assembled into flits, through a sender of a `BurstWriter`."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.device.vector.streams import ADDRESS_BITS

WORD_BITS = 32


class WordWriter(Component):
    """Takes ``word`` where ``valid`` meets ``ready``; ``flush`` fills the flit up with zeros and sends it.

    ``set_address`` makes ``address`` that of the next flit, while it ``is_idle``: no word is held and no flit left.
    ``offers``, ``to``, ``flit``, ``granted`` and ``next`` are those of a sender of a `BurstWriter`, a flit at a time.
    """

    def __init__(self, flit_bits: int) -> None:
        self.flit_bits = flit_bits
        super().__init__(
            {
                "set_address": In(1),
                "address": In(ADDRESS_BITS),
                "valid": In(1),
                "word": In(WORD_BITS),
                "flush": In(1),
                "ready": Out(1),
                "is_idle": Out(1),
                "offers": Out(1),
                "to": Out(ADDRESS_BITS),
                "flit": Out(flit_bits),
                "granted": In(1),
                "next": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fill a flit, offer it, and see it off."""
        m, lanes = Module(), self.flit_bits // WORD_BITS
        lane, full, sends = Signal(range(max(2, lanes))), Signal(), Signal()
        m.d.comb += [
            self.ready.eq(~full),
            self.is_idle.eq(~full & (lane == 0)),
            self.offers.eq(full & ~sends),
        ]
        with m.If(self.valid & self.ready):
            m.d.sync += [
                self.flit.word_select(lane, WORD_BITS).eq(self.word),
                lane.eq(Mux(lane == lanes - 1, 0, lane + 1)),
                full.eq(lane == lanes - 1),
            ]
        with m.Elif(self.flush & self.ready & (lane != 0)):
            m.d.sync += [full.eq(1), lane.eq(0)]
        with m.If(self.granted):
            m.d.sync += sends.eq(1)
        with m.If(self.next):
            m.d.sync += [full.eq(0), sends.eq(0), self.flit.eq(0), self.to.eq(self.to + 1)]
        with m.If(self.set_address):
            m.d.sync += self.to.eq(self.address)
        return m
