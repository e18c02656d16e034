"""Properties of bounded queues and of the credits that fill them."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.primitives.fifo import BoundedFifo, CreditCounter


class CreditsCoverTheQueue(Component):
    """A sender with credits, a link of ``delay`` cycles there and back, and a queue: it never overflows.

    The invariant, which makes the proof inductive: credits, words on the link, words in the queue and credits on their
    way back add up to the depth. A sender that begins with ``extra_credits`` must break it.
    """

    def __init__(self, depth: int = 3, delay: int = 2, extra_credits: int = 0) -> None:
        self.depth, self.delay, self.extra_credits = depth, delay, extra_credits
        super().__init__({"send": In(1), "read": In(1), "holds": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """The chain, and the sum over it."""
        m = Module()
        m.submodules.counter = counter = CreditCounter(self.depth + self.extra_credits)
        m.submodules.fifo = fifo = BoundedFifo(1, self.depth)
        there = Signal(self.delay)
        back = Signal(self.delay)
        m.d.comb += [
            counter.send.eq(self.send),
            counter.credit.eq(back[-1]),
            fifo.write_valid.eq(there[-1]),
            fifo.read_ready.eq(self.read),
        ]
        m.d.sync += [
            there.eq(Cat(self.send & counter.available, there[:-1])),
            back.eq(Cat(fifo.read_valid & self.read, back[:-1])),
        ]
        on_wires = sum((bit for bit in [*there, *back]), Const(0, 1))
        total = Signal(8)
        m.d.comb += [
            total.eq(counter.left + fifo.level + on_wires),
            self.holds.eq((total == self.depth + self.extra_credits) & ~(there[-1] & ~fifo.write_ready)),
        ]
        return m


class QueueKeepsOrder(Component):
    """Any word that enters a queue leaves it once, unchanged, after the words that were there before it."""

    def __init__(self, depth: int = 3, width: int = 2) -> None:
        self.depth, self.width = depth, width
        super().__init__(
            {"write_valid": In(1), "write_data": In(width), "read_ready": In(1), "mark": In(1), "holds": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        """Follow one word, chosen by ``mark``, by the number of words ahead of it."""
        m = Module()
        m.submodules.fifo = fifo = BoundedFifo(self.width, self.depth)
        followed = Signal()
        gone = Signal()
        word = Signal(self.width)
        ahead = Signal(range(self.depth + 1))
        enters, leaves = fifo.write_valid & fifo.write_ready, fifo.read_valid & fifo.read_ready
        m.d.comb += [
            fifo.write_valid.eq(self.write_valid),
            fifo.write_data.eq(self.write_data),
            fifo.read_ready.eq(self.read_ready),
        ]
        waits = followed & ~gone
        with m.If(self.mark & enters & ~followed):
            m.d.sync += [followed.eq(1), word.eq(self.write_data), ahead.eq(fifo.level - leaves)]
        with m.Elif(waits & leaves):
            m.d.sync += [ahead.eq(ahead - 1), gone.eq(ahead == 0)]
        is_first = waits & (ahead == 0)
        m.d.comb += self.holds.eq(~waits | ((fifo.level > ahead) & (~is_first | (fifo.read_data == word))))
        return m
