"""Memory behind a controller, as a simulation sees it: fixed latency on chip, a channel with a rate outside."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In
from amaranth.utils import bits_for

from acf.rtl.design.fabric.memory_port import memory_port
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import wrapped
from acf.sim.fabric.traffic import FRACTION_BITS

TIME_BITS = 32
TICK_BITS = 32


class FlitMemory(Component):
    """Answers requests in order, a flit a cycle, the first ``sram_cycles`` after its request at the controller's queue.

    A packet with ``ticks`` comes from outside the chip: it takes so long of the channel, in 1/65536 cycles, and
    ``outside_cycles`` more. ``load`` writes a flit, ``load_ticks`` the ticks of a packet by its number.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        super().__init__(
            {
                "run": In(1),
                "load": In(1),
                "load_ticks": In(1),
                "load_address": In(max(bits_for(sizes.memory_flits - 1), bits_for(sizes.command_depth - 1))),
                "load_data": In(sizes.flit_bits),
                "outside_cycles": In(16),
                "port": In(memory_port(sizes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A queue of requests with the cycle in which each may be read."""
        m, sizes = Module(), self.sizes
        m.submodules.store = store = Memory(shape=sizes.flit_bits, depth=max(2, sizes.memory_flits), init=[])
        write, read = store.write_port(), store.read_port()
        now = Signal(TIME_BITS)
        m.d.sync += now.eq(Mux(self.run, now + 1, 0))
        due, is_outside = self._due(m, now)
        layout = data.StructLayout(
            {"address": self.port.address.shape(), "flits": self.port.flits.shape(), "due": TIME_BITS, "outside": 1}
        )
        depth = sizes.shape.prefetch_packets
        m.submodules.requests = queue = Memory(shape=layout, depth=max(2, depth), init=[])
        push, head = queue.write_port(), queue.read_port(domain="comb")
        level, write_place, read_place = (
            Signal(range(depth + 1)),
            Signal(range(max(2, depth))),
            Signal(range(max(2, depth))),
        )
        begins, left, address = Signal(), Signal.like(self.port.flits), Signal.like(self.port.address)
        request = head.data
        m.d.comb += [
            push.en.eq(self.port.ask),
            push.addr.eq(write_place),
            push.data.address.eq(self.port.address),
            push.data.flits.eq(self.port.flits),
            push.data.due.eq(due),
            push.data.outside.eq(is_outside),
            head.addr.eq(read_place),
            begins.eq((level != 0) & (left == 0) & (now >= request.due)),
            read.addr.eq(Mux(begins, request.address, address)),
            self.port.data.eq(read.data),
            write.en.eq(self.load),
            write.addr.eq(self.load_address),
            write.data.eq(self.load_data),
        ]
        m.d.sync += [
            level.eq(level + self.port.ask - begins),
            self.port.valid.eq(begins | (left != 0)),
            self.port.first.eq(begins),
            self.port.late.eq(now != request.due),
            self.port.outside.eq(request.outside),
        ]
        with m.If(self.port.ask):
            m.d.sync += write_place.eq(wrapped(write_place + 1, depth))
        with m.If(begins):
            m.d.sync += [
                read_place.eq(wrapped(read_place + 1, depth)),
                left.eq(request.flits - 1),
                address.eq(request.address + 1),
            ]
        with m.Elif(left != 0):
            m.d.sync += [left.eq(left - 1), address.eq(address + 1)]
        return m

    def _due(self, m: Module, now: Signal) -> tuple[Signal, Signal]:
        """The cycle in which the packet asked for now may be read, and whether it comes from outside."""
        sizes = self.sizes
        m.submodules.ticks = memory = Memory(shape=TICK_BITS, depth=max(2, sizes.command_depth), init=[])
        write, read = memory.write_port(), memory.read_port()
        number = Signal(range(sizes.command_depth + 1))
        following = Mux(self.run, number + self.port.ask, 0)
        m.d.sync += number.eq(following)
        ticks, free = read.data, Signal(TIME_BITS + FRACTION_BITS)
        busy, due, is_outside = Signal.like(free), Signal(TIME_BITS), Signal()
        since = Cat(Signal(FRACTION_BITS, name="no_fraction"), now)
        m.d.comb += [
            write.en.eq(self.load_ticks),
            write.addr.eq(self.load_address),
            write.data.eq(self.load_data),
            read.addr.eq(following),
            is_outside.eq(ticks != 0),
            busy.eq(Mux(free > since, free, since) + ticks),
        ]
        ready = Mux(
            is_outside,
            (busy + 2**FRACTION_BITS - 1)[FRACTION_BITS:] + self.outside_cycles,
            now + sizes.shape.sram_cycles,
        )
        m.d.comb += due.eq(ready - 2)
        with m.If(~self.run):
            m.d.sync += free.eq(0)
        with m.Elif(self.port.ask & is_outside):
            m.d.sync += free.eq(busy)
        return due, is_outside
