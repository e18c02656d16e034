"""AXI4 burst writes: many senders round-robin, one burst after the other, several responses outstanding."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.axi.signatures import axi4_write
from acf.rtl.design.axi.spec import INCREMENTING, AxiSpec
from acf.rtl.design.primitives.round_robin import after, first_from, select


class BurstWriter(Component):
    """Writes the bursts that ``senders`` offer: ``words`` words of ``word_bits`` from beat ``address`` on.

    Senders guarantee that a burst does not cross a page. ``granted`` accepts a sender's offer; from the next cycle on
    the sender holds its current word at ``word`` and advances after each ``next``. The address of a burst is sent
    beside its words, and the next burst is granted with the last word, so that bursts follow each other without a gap.
    ``failed`` is 1 with a response that is an error; ``is_idle``: no burst is in flight and no response outstanding.
    """

    def __init__(self, spec: AxiSpec, senders: int, words: int, word_bits: int) -> None:
        self.spec, self.senders, self.word_bits = spec, senders, word_bits
        super().__init__(
            {
                "offers": In(senders),
                "addresses": In(data.ArrayLayout(spec.beat_address_bits, senders)),
                "words": In(data.ArrayLayout(bits_for(words), senders)),
                "word": In(data.ArrayLayout(word_bits, senders)),
                "granted": Out(senders),
                "next": Out(senders),
                "failed": Out(1),
                "is_idle": Out(1),
                "bus": Out(axi4_write(spec)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Address and words side by side; a new burst begins once both are through."""
        m, spec = Module(), self.spec
        beats_of_word = self.word_bits // spec.data_bits
        places = range(self.senders)
        turn, sender = Signal(range(max(2, self.senders))), Signal(self.senders)
        awaited = Signal(range(spec.outstanding_writes + 1))
        has_address, has_words = Signal(), Signal()
        address, left = Signal(spec.beat_address_bits), Signal.like(self.words[0])
        length = Signal(8)
        beat = Signal(range(max(2, beats_of_word)))
        chosen = first_from(m, self.offers, turn, "chosen")
        starts, word_ends, ends, is_free = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            is_free.eq((~has_address | self.bus.awready) & (~has_words | ends)),
            starts.eq(is_free & self.offers.any() & (awaited != spec.outstanding_writes)),
            self.granted.eq(Mux(starts, chosen, 0)),
            self.bus.awvalid.eq(has_address),
            self.bus.awaddr.eq(address << spec.size_code),
            self.bus.awlen.eq(length),
            self.bus.awsize.eq(spec.size_code),
            self.bus.awburst.eq(INCREMENTING),
            self.bus.awcache.eq(0b0011),
            self.bus.wvalid.eq(has_words),
            self.bus.wdata.eq(select(sender, [self.word[place] for place in places]).word_select(beat, spec.data_bits)),
            self.bus.wstrb.eq(-1),
            self.bus.wlast.eq((left == 1) & (beat == beats_of_word - 1)),
            word_ends.eq(self.bus.wvalid & self.bus.wready & (beat == beats_of_word - 1)),
            ends.eq(word_ends & (left == 1)),
            self.next.eq(Mux(word_ends, sender, 0)),
            self.bus.bready.eq(1),
            self.failed.eq(self.bus.bvalid & self.bus.bresp[1]),
            self.is_idle.eq(~has_address & ~has_words & (awaited == 0)),
        ]
        m.d.sync += awaited.eq(awaited + starts - self.bus.bvalid)
        with m.If(self.bus.awready):
            m.d.sync += has_address.eq(0)
        with m.If(ends):
            m.d.sync += has_words.eq(0)
        words = select(chosen, [self.words[place] for place in places])
        with m.If(starts):
            m.d.sync += [
                has_address.eq(1),
                has_words.eq(1),
                sender.eq(chosen),
                turn.eq(after(chosen)),
                address.eq(select(chosen, [self.addresses[place] for place in places])),
                length.eq(words * beats_of_word - 1),
                left.eq(words),
            ]
        with m.Elif(word_ends):
            m.d.sync += left.eq(left - 1)
        with m.If(self.bus.wvalid & self.bus.wready):
            m.d.sync += beat.eq(Mux(beat == beats_of_word - 1, 0, beat + 1))
        return m
