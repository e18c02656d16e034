"""Reads of the vector queue: several requesters share a burst reader, and beats become flits."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.axi.reader import BurstReader
from acf.rtl.design.axi.signatures import axi4_read
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.primitives.round_robin import after, first_from, index_of, select
from acf.rtl.design.primitives.wires import forward
from acf.rtl.device.vector.descriptor import DESCRIPTOR_BYTES, WORDS
from acf.rtl.device.vector.streams import ADDRESS_BITS, CHUNK_FLITS

COUNT_BITS = 24
"""Bits of the number of descriptors of a list."""


class VectorReads(Component):
    """Serves ``requesters`` round-robin: ``flits`` flits from flit ``addresses`` on, where ``wanted`` is ``granted``.

    ``flit_valid`` tells whose flit is at ``flit``; a requester has room for all that it asks for.
    """

    def __init__(self, spec: AxiSpec, flit_bits: int, requesters: int) -> None:
        self.spec, self.flit_bits, self.requesters = spec, flit_bits, requesters
        self.flit_beats = flit_bits // spec.data_bits
        super().__init__(
            {
                "wanted": In(requesters),
                "addresses": In(data.ArrayLayout(ADDRESS_BITS, requesters)),
                "flits": In(data.ArrayLayout(bits_for(CHUNK_FLITS), requesters)),
                "granted": Out(requesters),
                "flit_valid": Out(requesters),
                "flit": Out(flit_bits),
                "beat_valid": Out(1),
                "failed": Out(1),
                "bus": Out(axi4_read(spec)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A register holds the request that was granted until the reader takes it."""
        m, requesters, beats = Module(), range(self.requesters), self.flit_beats
        m.submodules.reader = reader = BurstReader(
            self.spec, bits_for(CHUNK_FLITS * beats), bits_for(self.requesters - 1)
        )
        forward(m, self, reader, ["bus"])
        turn, asked, takes = Signal(range(max(2, self.requesters))), Signal(), Signal()
        chosen = first_from(m, self.wanted, turn, "chosen")
        m.d.comb += [
            takes.eq(self.wanted.any() & (~asked | reader.ready)),
            self.granted.eq(Mux(takes, chosen, 0)),
            reader.valid.eq(asked),
            self.beat_valid.eq(reader.beat_valid),
            self.failed.eq(reader.failed),
        ]
        with m.If(takes):
            m.d.sync += [
                asked.eq(1),
                turn.eq(after(chosen)),
                reader.address.eq(select(chosen, [self.addresses[each] for each in requesters]) * beats),
                reader.beats.eq(select(chosen, [self.flits[each] for each in requesters]) * beats),
                reader.tag.eq(index_of(chosen)),
            ]
        with m.Elif(reader.ready):
            m.d.sync += asked.eq(0)
        beat, ends = Signal(range(max(2, beats))), Signal()
        m.d.comb += ends.eq(reader.beat_valid & (beat == beats - 1))
        with m.If(reader.beat_valid):
            m.d.sync += [
                beat.eq(Mux(ends, 0, beat + 1)),
                self.flit.eq(Cat(self.flit, reader.beat)[self.spec.data_bits :]),
            ]
        for each in requesters:
            m.d.sync += self.flit_valid[each].eq(ends & (reader.beat_tag == each))
        return m


class DescriptorFetcher(Component):
    """Reads a list of ``count`` descriptors at page ``page``, one ahead of the one that runs.

    ``start`` begins a list and forgets the one before; ``valid`` with ``words``, the next descriptor, until ``take``.
    ``is_over``: every descriptor was taken. ``is_idle``: no read is in flight.
    """

    def __init__(self, spec: AxiSpec, flit_bits: int) -> None:
        self.spec, self.flit_bits = spec, flit_bits
        self.descriptor_flits = 8 * DESCRIPTOR_BYTES // flit_bits
        super().__init__(
            {
                "start": In(1),
                "page": In(spec.address_bits - (PAGE_BYTES - 1).bit_length()),
                "count": In(COUNT_BITS),
                "wanted": Out(1),
                "address": Out(ADDRESS_BITS),
                "granted": In(1),
                "flit_valid": In(1),
                "flit": In(flit_bits),
                "valid": Out(1),
                "words": Out(32 * WORDS),
                "take": In(1),
                "is_over": Out(1),
                "is_idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One request at a time; flits are shifted into the words."""
        m = Module()
        left, asked = Signal(COUNT_BITS), Signal()
        flit = Signal(range(max(2, self.descriptor_flits)))
        m.d.comb += [
            self.wanted.eq((left != 0) & ~asked & (~self.valid | self.take) & ~self.start),
            self.is_over.eq((left == 0) & ~asked & ~self.valid),
            self.is_idle.eq(~asked),
        ]
        with m.If(self.take):
            m.d.sync += self.valid.eq(0)
        with m.If(self.granted):
            m.d.sync += [asked.eq(1), left.eq(left - 1), self.address.eq(self.address + self.descriptor_flits)]
        with m.If(self.flit_valid):
            m.d.sync += [self.words.eq(Cat(self.words, self.flit)[self.flit_bits :]), flit.eq(flit + 1)]
            with m.If(flit == self.descriptor_flits - 1):
                m.d.sync += [asked.eq(0), self.valid.eq(1), flit.eq(0)]
        with m.If(self.start):
            page_flits = 8 * PAGE_BYTES // self.flit_bits
            m.d.sync += [left.eq(self.count), self.address.eq(self.page * page_flits), self.valid.eq(0)]
        return m
