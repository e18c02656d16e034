"""AXI4 burst reads: transfers of any length, several bursts outstanding, beats in order of request."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.axi.bursts import next_burst
from acf.rtl.design.axi.signatures import axi4_read
from acf.rtl.design.axi.spec import INCREMENTING, AxiSpec
from acf.rtl.design.primitives.fifo import BoundedFifo


class BurstReader(Component):
    """Accepts a transfer by ``valid`` and ``ready``: ``beats`` from beat ``address`` on, for the requester ``tag``.

    The requester has room for the whole transfer: every beat is passed on to ``beat`` in the cycle in which it arrives,
    with its ``beat_tag``; ``beat_last`` ends a transfer. While ``stall`` is 1 no beat is taken from the bus. All bursts
    have one AXI id, so data come in order. ``failed`` is 1 with a beat whose response is an error.
    """

    def __init__(self, spec: AxiSpec, beats_bits: int, tag_bits: int) -> None:
        self.spec = spec
        super().__init__(
            {
                "valid": In(1),
                "ready": Out(1),
                "address": In(spec.beat_address_bits),
                "beats": In(beats_bits),
                "tag": In(tag_bits),
                "stall": In(1),
                "beat_valid": Out(1),
                "beat": Out(spec.data_bits),
                "beat_tag": Out(tag_bits),
                "beat_last": Out(1),
                "failed": Out(1),
                "is_idle": Out(1),
                "bus": Out(axi4_read(spec)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The current transfer, split into bursts, and a FIFO of the bursts in flight."""
        m, spec = Module(), self.spec
        layout = data.StructLayout({"tag": self.tag.shape(), "last": 1})
        m.submodules.open = under_way = BoundedFifo(layout.size, spec.outstanding_reads)
        active, address = Signal(), Signal.like(self.address)
        left, tag = Signal.like(self.beats), Signal.like(self.tag)
        burst = next_burst(m, spec, address, left, "burst")
        asks, is_final = Signal(), Signal()
        entry, oldest = Signal(layout), Signal(layout)
        m.d.comb += [
            self.bus.arvalid.eq(active & under_way.write_ready),
            self.bus.araddr.eq(address << spec.size_code),
            self.bus.arlen.eq(burst - 1),
            self.bus.arsize.eq(spec.size_code),
            self.bus.arburst.eq(INCREMENTING),
            self.bus.arcache.eq(0b0011),
            asks.eq(self.bus.arvalid & self.bus.arready),
            is_final.eq(left == burst),
            entry.tag.eq(tag),
            entry.last.eq(is_final),
            under_way.write_valid.eq(asks),
            under_way.write_data.eq(entry),
            self.ready.eq(~active | (asks & is_final)),
        ]
        with m.If(self.valid & self.ready):
            m.d.sync += [active.eq(1), address.eq(self.address), left.eq(self.beats), tag.eq(self.tag)]
        with m.Elif(asks):
            m.d.sync += [active.eq(~is_final), address.eq(address + burst), left.eq(left - burst)]
        m.d.comb += [
            self.bus.rready.eq(~self.stall),
            self.beat_valid.eq(self.bus.rvalid & ~self.stall),
            oldest.eq(under_way.read_data),
            self.beat.eq(self.bus.rdata),
            self.beat_tag.eq(oldest.tag),
            self.beat_last.eq(self.bus.rlast & oldest.last),
            self.failed.eq(self.beat_valid & self.bus.rresp[1]),
            under_way.read_ready.eq(self.beat_valid & self.bus.rlast),
            self.is_idle.eq(~active & (under_way.level == 0)),
        ]
        return m
