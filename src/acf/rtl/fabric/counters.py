"""What a unit does with its cycles, counted under the simulator's names."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from acf.sim.fabric.traffic import DRAIN, REASONS

COUNTER_BITS = 32


class StallCounters(Component):
    """A counter for each of `REASONS`; ``idle`` counts the cycles since the last piece, not yet put down to a reason.

    All of a wait goes to what ended it: the piece, if it came last; else the last block of its step; else, with both
    there, the bank that was full.
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
                "idle": Out(COUNTER_BITS),
                **{reason: Out(COUNTER_BITS) for reason in REASONS},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The reason is known when the wait ends."""
        m = Module()
        item_was_there, blocks_were_there = Signal(), Signal()
        m.d.sync += [item_was_there.eq(self.item_there), blocks_were_there.eq(self.blocks_there)]
        reason = Signal(3)
        m.d.comb += reason.eq(Mux(item_was_there, Mux(blocks_were_there, DRAIN, self.block_reason), self.item_reason))
        with m.If(self.works | self.scans):
            m.d.sync += self.idle.eq(0)
        with m.Elif(self.enable):
            m.d.sync += self.idle.eq(self.idle + 1)
        with m.If(self.works):
            m.d.sync += self.work.eq(self.work + 1)
        with m.If(self.scans):
            m.d.sync += self.scan.eq(self.scan + 1)
        for index, name in enumerate(REASONS[2:], start=2):
            counter = getattr(self, name)
            with m.If(self.begins & (reason == index)):
                m.d.sync += counter.eq(counter + self.idle)
        return m
