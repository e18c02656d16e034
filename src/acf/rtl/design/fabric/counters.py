"""Performance counters of an SCU: its cycles by stall reason, under the simulator's names."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.primitives.bits import masked
from acf.sim.fabric.traffic import DRAIN, REASONS, SCAN, WORK

COUNTER_BITS = 32
REASON_NUMBER_BITS = bits_for(len(REASONS) - 1)


class StallCounters(Component):
    """A counter for each of `REASONS`, in one LUTRAM; the cycles of a phase are added when the phase ends.

    A whole wait is attributed to what ended it: the serial tile, if it arrived last; else the last block of its
    k_step; else, with both there, the bank that had not drained. ``counted`` is the counter of ``counted_reason`` while
    ``counted_valid``; it is 0 unless ``is_counted``. The current phase is not yet in it: ``since`` + ``turned`` are
    its cycles, which after the last tile are the idle ones.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "enable": In(1),
                "item_there": In(1),
                "blocks_there": In(1),
                "item_reason": In(3),
                "block_reason": In(3),
                "begins": In(1),
                "works": In(1),
                "scans": In(1),
                "counted_reason": In(REASON_NUMBER_BITS),
                "counted": Out(COUNTER_BITS),
                "is_counted": Out(1),
                "counted_valid": Out(1),
                "since": Out(COUNTER_BITS),
                "turned": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The reason of a wait is known when it ends. A LUTRAM has no reset: a bit per counter marks it valid."""
        m = Module()
        item_was_there, blocks_were_there, worked, scanned = Signal(), Signal(), Signal(), Signal()
        m.d.sync += [
            item_was_there.eq(self.item_there),
            blocks_were_there.eq(self.blocks_there),
            worked.eq(self.works),
            scanned.eq(self.scans),
        ]
        waited_for, reason, turns = Signal(3), Signal(3), Signal()
        m.d.comb += [
            waited_for.eq(Mux(item_was_there, Mux(blocks_were_there, DRAIN, self.block_reason), self.item_reason)),
            reason.eq(Mux(worked, WORK, Mux(scanned, SCAN, waited_for))),
            turns.eq((worked != self.works) | (scanned != self.scans)),
        ]
        with m.If(turns):
            m.d.sync += [self.since.eq(0), self.turned.eq(1)]
        with m.Elif(worked | scanned | self.enable):
            m.d.sync += self.since.eq(self.since + 1)
        # A cycle later the ended phase is added to its counter.
        adds, added_reason, added, has_more = Signal(), Signal(3), Signal(COUNTER_BITS), Signal()
        written, is_written = Signal(1 << REASON_NUMBER_BITS), Signal()
        m.d.sync += [
            adds.eq(turns),
            added_reason.eq(reason),
            added.eq(self.since),
            has_more.eq(self.turned),
            is_written.eq(written.bit_select(reason, 1)),
        ]
        with m.If(turns):
            m.d.sync += written.bit_select(reason, 1).eq(1)
        m.submodules.memory = memory = Memory(shape=COUNTER_BITS, depth=1 << REASON_NUMBER_BITS, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        total = Signal(1 + COUNTER_BITS)
        m.d.comb += [
            # The sum of both and of has_more, which keeps a borrow from coming out of the lowest place.
            total.eq(Cat(has_more, added) - Cat(Const(1, 1), ~masked(read.data, is_written))),
            read.addr.eq(Mux(adds, added_reason, self.counted_reason)),
            write.addr.eq(added_reason),
            write.en.eq(adds),
            write.data.eq(total[1:]),
            self.counted.eq(read.data),
            self.is_counted.eq(written.bit_select(self.counted_reason, 1)),
            self.counted_valid.eq(~adds),
        ]
        return m
