"""The index memory of a device: it loads a descriptor and the index behind it, and answers the walking controller."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.errors import RtlError
from acf.lowering.descriptor import DESCRIPTOR_WORDS, FIELDS
from acf.rtl.design.axi.reader import BurstReader
from acf.rtl.design.axi.signatures import axi4_read
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.primitives.wires import forward

WORD_BITS = 32


class IndexMemory(Component):
    """``start`` loads the descriptor at page ``page`` of memory, then the index that it names.

    ``busy`` holds meanwhile. An index that is to be read fresh (``fresh_index`` of its descriptor) is not read while
    ``waits``; ``gives_up`` ends that wait, and nothing is read. ``failed``: memory answered with an error.
    ``is_refused``: the index has no words, or more than the ``words`` of this memory. ``descriptor`` has the words of
    the last one loaded. For each of its ``readers`` ``read_data`` answers ``read_address``, a number of a 32-bit word,
    one cycle later; the descriptor comes first.
    """

    def __init__(self, spec: AxiSpec, words: int, readers: int = 1) -> None:
        self.spec, self.words, self.readers = spec, words, readers
        self.beat_words = spec.data_bits // WORD_BITS
        if DESCRIPTOR_WORDS % self.beat_words:
            raise RtlError(
                f"a bus of {spec.data_bits} bits does not divide a descriptor of {DESCRIPTOR_WORDS} words; use one "
                "of 256 bits or less"
            )
        if words <= DESCRIPTOR_WORDS or words % self.beat_words:
            raise RtlError(
                f"index_words {words} must be a multiple of {self.beat_words}, the words of a beat, and above "
                f"{DESCRIPTOR_WORDS}, those of a descriptor; use such a number"
            )
        super().__init__(
            {
                "start": In(1),
                "page": In(spec.page_bits),
                "waits": In(1),
                "gives_up": In(1),
                "busy": Out(1),
                "failed": Out(1),
                "is_refused": Out(1),
                "beat_valid": Out(1),
                "descriptor": Out(data.ArrayLayout(WORD_BITS, DESCRIPTOR_WORDS)),
                "read_address": In(data.ArrayLayout(WORD_BITS, readers)),
                "read_data": Out(data.ArrayLayout(WORD_BITS, readers)),
                "bus": Out(axi4_read(spec)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Two transfers: a descriptor, then an index."""
        m, spec = Module(), self.spec
        depth = self.words // self.beat_words
        m.submodules.reader = reader = BurstReader(spec, bits_for(depth), 1)
        m.submodules.content = content = Memory(shape=spec.data_bits, depth=max(2, depth), init=[])
        write = content.write_port()
        forward(m, self, reader, ["bus"])
        place, shift = Signal(range(depth + 1)), (self.beat_words - 1).bit_length()
        for number in range(self.readers):
            read, lane = content.read_port(), Signal(range(max(2, self.beat_words)), name=f"lane_{number}")
            m.d.sync += lane.eq(self.read_address[number][:shift] if shift else 0)
            m.d.comb += [
                read.addr.eq(self.read_address[number][shift:]),
                self.read_data[number].eq(read.data.word_select(lane, WORD_BITS)),
            ]
        m.d.comb += [
            self.beat_valid.eq(reader.beat_valid),
            self.failed.eq(reader.failed),
            write.en.eq(reader.beat_valid),
            write.addr.eq(place),
            write.data.eq(reader.beat),
        ]
        with m.If(reader.beat_valid):
            m.d.sync += place.eq(place + 1)
            for number in range(DESCRIPTOR_WORDS):
                beat, part = divmod(number, self.beat_words)
                with m.If(place == beat):
                    m.d.sync += self.descriptor[number].eq(reader.beat.word_select(part, WORD_BITS))
        self._control(m, reader, place)
        return m

    def _control(self, m: Module, reader: BurstReader, place: Signal) -> None:
        page_shift = self.spec.page_beats.bit_length() - 1
        words, index_page = (self.descriptor[FIELDS[name].word] for name in ("index_words", "index_page"))
        beats, fresh = Signal(WORD_BITS), FIELDS["fresh_index"]
        asked = Signal()
        m.d.comb += beats.eq((words + self.beat_words - 1) >> (self.beat_words - 1).bit_length())
        with m.FSM() as control:
            with m.State("IDLE"):
                m.d.sync += [place.eq(0), asked.eq(0)]
                with m.If(self.start):
                    m.d.sync += self.is_refused.eq(0)
                    m.next = "DESCRIPTOR"
            with m.State("DESCRIPTOR"):
                m.d.comb += [
                    reader.valid.eq(~asked),
                    reader.address.eq(self.page << page_shift),
                    reader.beats.eq(DESCRIPTOR_WORDS // self.beat_words),
                ]
                m.d.sync += asked.eq(asked | reader.ready)
                with m.If(reader.beat_valid & reader.beat_last):
                    m.d.sync += asked.eq(0)
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.next = "INDEX"
                with m.If((words == 0) | (words > self.words - DESCRIPTOR_WORDS)):
                    m.d.sync += self.is_refused.eq(1)
                    m.next = "IDLE"
                with m.Elif(self.descriptor[fresh.word][fresh.low] & self.waits):
                    m.next = "CHECK"
                    with m.If(self.gives_up):
                        m.next = "IDLE"
            with m.State("INDEX"):
                m.d.comb += [
                    reader.valid.eq(~asked),
                    reader.address.eq(index_page << page_shift),
                    reader.beats.eq(beats),
                ]
                m.d.sync += asked.eq(asked | reader.ready)
                with m.If(reader.beat_valid & reader.beat_last):
                    m.next = "IDLE"
            m.d.comb += self.busy.eq(~control.ongoing("IDLE"))
