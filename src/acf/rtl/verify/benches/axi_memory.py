"""Memory behind an AXI4 master, as a simulation sees it: a latency, and a beat a cycle each way."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.axi.signatures import axi4
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.primitives.fifo import BoundedFifo

TIME_BITS = 32


class AxiMemory(Component):
    """A slave with ``beats`` of memory; the first beat of a read comes ``latency`` cycles after its address or later.

    ``load`` writes ``load_data`` at beat ``load_address``; while nothing is read, ``peek`` is what lies at beat
    ``peek_address``, a cycle later. Bursts are INCR of whole beats; there are no errors.
    """

    def __init__(self, spec: AxiSpec, beats: int) -> None:
        self.spec, self.beats = spec, beats
        place = bits_for(beats - 1)
        super().__init__(
            {
                "latency": In(16),
                "load": In(1),
                "load_address": In(place),
                "load_data": In(spec.data_bits),
                "peek_address": In(place),
                "peek": Out(spec.data_bits),
                "bus": In(axi4(spec)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One memory with a port each way."""
        m = Module()
        m.submodules.content = memory = Memory(shape=self.spec.data_bits, depth=self.beats, init=[])
        self._read(m, memory.read_port())
        self._write(m, memory.write_port())
        return m

    def _read(self, m: Module, port: Any) -> None:
        """A queue of bursts with the cycle from which each may be read."""
        spec, place = self.spec, self.peek_address.shape()
        layout = data.StructLayout({"address": place, "length": 8, "due": TIME_BITS})
        m.submodules.reads = queue = BoundedFifo(layout.size, spec.outstanding_reads)
        asked, oldest, now = Signal(layout), Signal(layout), Signal(TIME_BITS)
        beat, reads, goes_on = Signal(8), Signal(), Signal()
        address = Signal(place)
        m.d.sync += now.eq(now + 1)
        m.d.comb += [
            self.bus.arready.eq(queue.write_ready),
            queue.write_valid.eq(self.bus.arvalid),
            asked.address.eq(self.bus.araddr >> spec.size_code),
            asked.length.eq(self.bus.arlen),
            asked.due.eq(now + self.latency),
            queue.write_data.eq(asked),
            oldest.eq(queue.read_data),
            goes_on.eq(~self.bus.rvalid | self.bus.rready),
            reads.eq(queue.read_valid & (now >= oldest.due) & goes_on),
            queue.read_ready.eq(reads & (beat == oldest.length)),
            address.eq(oldest.address + beat),
            port.addr.eq(Mux(reads, address, self.peek_address)),
            port.en.eq(goes_on),
            self.bus.rdata.eq(port.data),
            self.peek.eq(port.data),
        ]
        with m.If(goes_on):
            m.d.sync += [self.bus.rvalid.eq(reads), self.bus.rlast.eq(beat == oldest.length)]
        with m.If(reads):
            m.d.sync += beat.eq(Mux(beat == oldest.length, 0, beat + 1))

    def _write(self, m: Module, port: Any) -> None:
        """Addresses are queued, so that bursts follow each other without a gap; an answer follows a last beat."""
        m.submodules.writes = queue = BoundedFifo(len(self.peek_address), self.spec.outstanding_writes)
        asked, address, beat = Signal(len(self.peek_address)), Signal(len(self.peek_address)), Signal(8)
        takes, ends, has_address = Signal(), Signal(), Signal()
        m.d.comb += [
            asked.eq(self.bus.awaddr >> self.spec.size_code),
            self.bus.awready.eq(queue.write_ready),
            queue.write_valid.eq(self.bus.awvalid & (queue.read_valid | ~ends)),
            queue.write_data.eq(asked),
            has_address.eq(queue.read_valid | (self.bus.awvalid & self.bus.awready)),
            self.bus.wready.eq(has_address & (~self.bus.bvalid | self.bus.bready)),
            takes.eq(self.bus.wvalid & self.bus.wready),
            ends.eq(takes & self.bus.wlast),
            queue.read_ready.eq(ends),
            address.eq(Mux(queue.read_valid, queue.read_data, asked) + beat),
            port.en.eq(takes | self.load),
            port.addr.eq(Mux(takes, address, self.load_address)),
            port.data.eq(Mux(takes, self.bus.wdata, self.load_data)),
        ]
        with m.If(takes):
            m.d.sync += [beat.eq(Mux(self.bus.wlast, 0, beat + 1)), self.bus.bvalid.eq(self.bus.wlast)]
        with m.Elif(self.bus.bready):
            m.d.sync += self.bus.bvalid.eq(0)
