"""Streams between memory and the vector unit: runs of flits, read ahead, and written in bursts."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.axi.spec import PAGE_BYTES
from acf.rtl.design.primitives.fifo import BoundedFifo
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.device.vector.descriptor import ORDERS
from acf.rtl.device.vector.turning import VALUE_BITS, Spreader, TileTurner

ADDRESS_BITS = 32
"""Bits of the number of a flit in memory."""

RUN_BITS = 16
"""Bits of the number of runs, and of the vectors of a run."""

FLITS_BITS = 20
"""Bits of the flits of a run: up to 8 flits a vector."""

CHUNK_FLITS, READ_FLITS = 16, 64
"""Flits of a read, and those that a stream reads ahead: enough for a latency of 50 cycles at a flit a cycle."""


class Runs:
    """Registers of a stream: ``runs`` runs of ``flits`` flits from ``address`` on, ``skip`` flits between two.

    ``left``: flits left in the current run; ``is_over``: no run is left.
    """

    def __init__(self, m: Module, component: "InputStream | OutputStream") -> None:
        self.address = Signal(ADDRESS_BITS)
        self.left, self.flits = Signal(FLITS_BITS), Signal(FLITS_BITS)
        self.skip, self.runs = Signal(ADDRESS_BITS), Signal(RUN_BITS)
        self.is_over = Signal()
        m.d.comb += self.is_over.eq(self.runs == 0)
        with m.If(component.start):
            m.d.sync += [
                self.address.eq(component.address),
                self.left.eq(component.run_flits),
                self.flits.eq(component.run_flits),
                self.skip.eq(component.skip),
                self.runs.eq(component.runs),
            ]

    def advance(self, m: Module, moved: Signal) -> None:
        """Go on by ``moved`` flits, within the run or to its end."""
        ends = Signal()
        m.d.comb += ends.eq(self.left == moved)
        m.d.sync += [
            self.address.eq(self.address + moved + Mux(ends, self.skip, 0)),
            self.left.eq(Mux(ends, self.flits, self.left - moved)),
            self.runs.eq(self.runs - ends),
        ]


def _run_ports() -> dict[str, In]:
    return {
        "start": In(1),
        "address": In(ADDRESS_BITS),
        "run_flits": In(FLITS_BITS),
        "runs": In(RUN_BITS),
        "skip": In(ADDRESS_BITS),
    }


class InputStream(Component):
    """Reads runs of flits ahead and offers them as vectors of float32 bits.

    ``wanted`` asks for ``want_flits`` flits from ``want_address`` on and is answered by ``granted``; the flits come in
    order with ``flit_valid``, and there is room for them. With ``is_wide`` a vector is two flits of float32, else one
    of bf16. ``take`` removes the vector that is at ``values``. ``order``: a code of `ORDERS`, where the stream
    ``turns``; else it gives rows alone.
    """

    def __init__(self, flit_bits: int, turns: bool = False) -> None:
        self.flit_bits, self.turns = flit_bits, turns
        super().__init__(
            {
                **_run_ports(),
                "is_wide": In(1),
                "order": In(2),
                "wanted": Out(1),
                "want_address": Out(ADDRESS_BITS),
                "want_flits": Out(range(CHUNK_FLITS + 1)),
                "granted": In(1),
                "flit_valid": In(1),
                "flit": In(flit_bits),
                "valid": Out(1),
                "values": Out(2 * flit_bits),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Requests within the room that is left; a register for the first half of a float32 vector."""
        m = Module()
        m.submodules.fifo = fifo = BoundedFifo(self.flit_bits, READ_FLITS)
        runs = Runs(m, self)
        space = Signal(range(READ_FLITS + 1), init=READ_FLITS)
        half, has_half, loads_half = Signal(self.flit_bits), Signal(), Signal()
        m.d.comb += [
            self.want_flits.eq(Mux(runs.left < CHUNK_FLITS, runs.left, CHUNK_FLITS)),
            self.want_address.eq(runs.address),
            self.wanted.eq(~runs.is_over & (space >= self.want_flits) & ~self.start),
            fifo.write_valid.eq(self.flit_valid),
            fifo.write_data.eq(self.flit),
            loads_half.eq(self.is_wide & ~has_half & fifo.read_valid),
            self.valid.eq(fifo.read_valid & (has_half | ~self.is_wide)),
            self.values.eq(Mux(self.is_wide, Cat(half, fifo.read_data), _widened(fifo.read_data))),
            fifo.read_ready.eq(loads_half | self.take),
        ]
        if self.turns:
            self._turn(m, fifo, ~runs.is_over | (space != READ_FLITS))
        m.d.sync += space.eq(space + (fifo.read_valid & fifo.read_ready) - Mux(self.granted, self.want_flits, 0))
        with m.If(self.granted):
            runs.advance(m, self.want_flits)
        with m.If(loads_half):
            m.d.sync += [half.eq(fifo.read_data), has_half.eq(1)]
        with m.If(self.take):
            m.d.sync += has_half.eq(0)
        return m

    def _turn(self, m: Module, fifo: BoundedFifo, more: Value) -> None:
        """The other orders, between the queue of flits and the values."""
        side = self.flit_bits // VALUE_BITS
        turner = place(m, "turner", TileTurner(side), "tile_turner")
        spreader = place(m, "spreader", Spreader(side), "spreader")
        m.d.comb += [turner.flit.eq(fifo.read_data), turner.more.eq(more), spreader.flit.eq(fifo.read_data)]
        with m.If(self.order == ORDERS["columns"]):
            m.d.comb += [
                turner.valid.eq(fifo.read_valid),
                turner.take.eq(self.take),
                fifo.read_ready.eq(turner.ready),
                self.valid.eq(turner.out_valid),
                self.values.eq(_widened(turner.out)),
            ]
        with m.If(self.order == ORDERS["spread"]):
            m.d.comb += [
                spreader.take.eq(self.take),
                fifo.read_ready.eq(spreader.ready),
                self.values.eq(_widened(spreader.out)),
            ]


class OutputStream(Component):
    """Collects flits and offers them to a `BurstWriter` in bursts of at most ``burst`` flits, within pages and runs.

    A flit enters where ``valid`` meets ``ready``. ``is_over``: all flits of all runs were handed to the writer. With
    ``turned`` tiles of bf16 are transposed before, where the stream ``turns``; ``ends``: no further flit will enter.
    """

    def __init__(self, flit_bits: int, burst: int, turns: bool = False) -> None:
        self.flit_bits, self.burst, self.turns = flit_bits, burst, turns
        super().__init__(
            {
                **_run_ports(),
                "valid": In(1),
                "ready": Out(1),
                "flit": In(flit_bits),
                "turned": In(1),
                "ends": In(1),
                "offers": Out(1),
                "to": Out(ADDRESS_BITS),
                "words": Out(bits_for(burst)),
                "word": Out(flit_bits),
                "granted": In(1),
                "next": In(1),
                "is_over": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One burst at a time, offered once all its flits are there."""
        m = Module()
        m.submodules.fifo = fifo = BoundedFifo(self.flit_bits, 4 * self.burst)
        runs = Runs(m, self)
        page_flits = 8 * PAGE_BYTES // self.flit_bits
        to_page_end = Signal(range(page_flits + 1))
        most, busy, left = Signal(range(page_flits + 1)), Signal(), Signal(bits_for(self.burst))
        m.d.comb += [
            to_page_end.eq(page_flits - runs.address[: page_flits.bit_length() - 1]),
            most.eq(Mux(to_page_end < self.burst, to_page_end, self.burst)),
            self.words.eq(Mux(runs.left < most, runs.left, most)),
            self.to.eq(runs.address),
            self.offers.eq(~busy & ~runs.is_over & (fifo.level >= self.words) & ~self.start),
            fifo.write_valid.eq(self.valid),
            fifo.write_data.eq(self.flit),
            self.ready.eq(fifo.write_ready),
            fifo.read_ready.eq(self.next),
            self.word.eq(fifo.read_data),
            self.is_over.eq(runs.is_over & ~busy),
        ]
        if self.turns:
            self._turn(m, fifo)
        with m.If(self.granted):
            m.d.sync += [busy.eq(1), left.eq(self.words)]
            runs.advance(m, self.words)
        with m.Elif(self.next):
            m.d.sync += [busy.eq(left != 1), left.eq(left - 1)]
        return m

    def _turn(self, m: Module, fifo: BoundedFifo) -> None:
        """A turner in front of the queue of flits."""
        turner = place(m, "turner", TileTurner(self.flit_bits // VALUE_BITS), "tile_turner")
        m.d.comb += [
            turner.flit.eq(self.flit),
            turner.valid.eq(self.valid & self.turned),
            turner.more.eq(~self.ends),
            turner.take.eq(fifo.write_ready & self.turned),
        ]
        with m.If(self.turned):
            m.d.comb += [
                fifo.write_valid.eq(turner.out_valid),
                fifo.write_data.eq(turner.out),
                self.ready.eq(turner.ready),
            ]


def _widened(flit: Signal) -> Cat:
    """Float32 bits of bf16 values."""
    values = [flit[at : at + 16] for at in range(0, len(flit), 16)]
    return Cat(*(part for value in values for part in (Const(0, 16), value)))
