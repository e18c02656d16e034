"""Write buffers at the edges of the fabric: results collected by stream until they fill a burst."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import any_of, lowest_set
from acf.rtl.design.primitives.round_robin import after, first_from

BURST_BYTES = 256
"""Bytes of a burst of results; at least one flit."""


def burst_flits(sizes: FabricSizes, spec: AxiSpec) -> int:
    """Flits of a burst of results: a power of two, so that bursts end where pages do."""
    beats = sizes.flit_bits // spec.data_bits
    return max(1, min(BURST_BYTES // sizes.shape.link_bytes, spec.burst_beats // beats))


class ResultCollector(Component):
    """Buffers the flits of ``streams`` in a ring each and offers full bursts to a `BurstWriter`.

    ``set_address`` sets the first beat in memory of stream ``set_stream``. A flit of ``stream`` comes with ``valid``
    and cannot be refused; ``hold`` is back-pressure, raised while there is still room for the ``in_flight`` flits of a
    stream that may follow, and ``ready`` tells that a flit of any stream has room. With the last word of a burst the
    next one is offered, so that a stream is written without gaps. ``flush`` offers partial bursts too. ``overflows``: a
    flit was lost, which is a defect.
    """

    def __init__(self, sizes: FabricSizes, spec: AxiSpec, streams: int, in_flight: int) -> None:
        self.sizes, self.spec, self.streams, self.in_flight = sizes, spec, streams, in_flight
        self.burst = burst_flits(sizes, spec)
        self.room = 1 << (2 * self.burst + in_flight - 1).bit_length()
        super().__init__(
            {
                "set_address": In(1),
                "set_stream": In(bits_for(streams - 1)),
                "first_beat": In(spec.beat_address_bits),
                "valid": In(1),
                "stream": In(bits_for(streams - 1)),
                "flit": In(sizes.flit_bits),
                "flush": In(1),
                "offers": Out(1),
                "address": Out(spec.beat_address_bits),
                "words": Out(bits_for(self.burst)),
                "word": Out(sizes.flit_bits),
                "granted": In(1),
                "next": In(1),
                "hold": Out(1),
                "ready": Out(1),
                "is_empty": Out(1),
                "overflows": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A ring for every stream in one memory; one burst at a time is read out."""
        m = Module()
        streams = range(self.streams)
        levels = [Signal(range(self.room + 1), name=f"level_{stream}") for stream in streams]
        busy, left = Signal(), Signal.like(self.words)
        chosen, current = Signal.like(self.stream), Signal.like(self.stream)
        ready, turn = Signal(self.streams), Signal(range(max(2, self.streams)))
        ends, is_free = Signal(), Signal()
        remaining = [Signal.like(level, name=f"remaining_{stream}") for stream, level in enumerate(levels)]
        for stream in streams:
            m.d.comb += remaining[stream].eq(levels[stream] - (self.next & (current == stream)))
        m.d.comb += [
            ends.eq(self.next & (left == 1)),
            is_free.eq(~busy | ends),
            ready.eq(
                Cat(*((level >= self.burst) | (self.flush & (level != 0)) for level in remaining))
                & is_free.replicate(len(ready))
            ),
        ]
        first = first_from(m, ready, turn, "first")
        level = Array(remaining)[chosen]
        m.d.comb += [
            chosen.eq(Mux(is_free, lowest_set(first), current)),
            self.offers.eq(ready.any()),
            self.words.eq(Mux(level >= self.burst, self.burst, level)),
            self.hold.eq(any_of([level >= self.room - self.in_flight for level in levels])),
            self.ready.eq(~any_of([level == self.room for level in levels])),
            self.is_empty.eq(~busy & ~any_of([level != 0 for level in levels])),
            self.overflows.eq(self.valid & (Array(levels)[self.stream] == self.room)),
        ]
        with m.If(self.granted):
            m.d.sync += [busy.eq(1), current.eq(chosen), left.eq(self.words), turn.eq(after(first))]
        with m.Elif(self.next):
            m.d.sync += [busy.eq(~ends), left.eq(left - 1)]
        for stream in streams:
            m.d.sync += levels[stream].eq(remaining[stream] + (self.valid & (self.stream == stream)))
        self._store(m, chosen, current)
        self._address(m, chosen)
        return m

    def _store(self, m: Module, chosen: Signal, current: Signal) -> None:
        """The rings; the next word is always read ahead."""
        bits = (self.room - 1).bit_length()
        m.submodules.store = store = Memory(shape=self.sizes.flit_bits, depth=self.streams * self.room, init=[])
        write, read = store.write_port(), store.read_port()
        ends = {
            name: [Signal(bits, name=f"{name}_{stream}") for stream in range(self.streams)] for name in ("in", "out")
        }
        place, after_word = Signal(bits), Signal(bits)
        m.d.comb += [
            write.en.eq(self.valid),
            write.addr.eq(Cat(Array(ends["in"])[self.stream], self.stream)),
            write.data.eq(self.flit),
            after_word.eq(Array(ends["out"])[current] + self.next),
            place.eq(Mux(chosen == current, after_word, Array(ends["out"])[chosen])),
            read.addr.eq(Cat(place, chosen)),
            self.word.eq(read.data),
        ]
        with m.If(self.valid):
            m.d.sync += Array(ends["in"])[self.stream].eq(Array(ends["in"])[self.stream] + 1)
        with m.If(self.next):
            m.d.sync += Array(ends["out"])[current].eq(after_word)

    def _address(self, m: Module, chosen: Signal) -> None:
        """The address of the next burst of every stream, in LUTRAM."""
        m.submodules.addresses = memory = Memory(shape=self.spec.beat_address_bits, depth=max(2, self.streams), init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        beats = self.sizes.flit_bits // self.spec.data_bits
        m.d.comb += [
            read.addr.eq(chosen),
            self.address.eq(read.data),
            write.en.eq(self.set_address | self.granted),
            write.addr.eq(Mux(self.set_address, self.set_stream, chosen)),
            write.data.eq(Mux(self.set_address, self.first_beat, read.data + self.words * beats)),
        ]
