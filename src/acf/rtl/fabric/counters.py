"""What a unit does with its cycles, counted under the simulator's names."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.sim.fabric.traffic import DRAIN, REASONS, SCAN, WORK

COUNTER_BITS = 32
REASON_NUMBER_BITS = bits_for(len(REASONS) - 1)


class StallCounters(Component):
    """A counter for each of `REASONS`, in one small memory; cycles are added when the unit turns to something else.

    All of a wait goes to what ended it: the piece, if it came last; else the last block of its step; else, with both
    there, the bank that was full. ``counted`` is the counter of ``counted_reason`` while ``counted_valid``; a wait or
    a stretch of work that has not ended is not yet in it. ``since`` counts, from -1, the cycles since the unit last
    turned to something else; after its last piece these are the idle ones.
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
                "counted_valid": Out(1),
                "since": Out(COUNTER_BITS, init=(1 << COUNTER_BITS) - 1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The reason of a wait is known when it ends."""
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
        since = Signal(COUNTER_BITS, init=(1 << COUNTER_BITS) - 1, reset_less=True)
        with m.If(turns):
            m.d.sync += since.eq(0)
        with m.Elif(worked | scanned | self.enable):
            m.d.sync += since.eq(since + 1)
        m.submodules.memory = memory = Memory(shape=COUNTER_BITS, depth=1 << REASON_NUMBER_BITS, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [
            read.addr.eq(Mux(turns, reason, self.counted_reason)),
            write.addr.eq(reason),
            write.en.eq(turns),
            write.data.eq(read.data - ~since),  # since + 1 cycles more
            self.counted.eq(read.data),
            self.counted_valid.eq(~turns),
            self.since.eq(since),
        ]
        return m
