"""A memory controller: commands in order, data prefetched, packets sent when every destination has credit."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.fabric.memory_port import memory_port
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import all_of, any_of, wrapped
from acf.rtl.design.primitives.unit_gates import stopped_unless
from acf.sim.fabric.traffic import FILL, IMBALANCE, MEMORY, MESH

COUNT_BITS = 24
"""Bits of the number of commands of a line."""


class Controller(Component):
    """The controller of a line of ``places`` routers; with ``serial`` one of a mesh row, else of a mesh column.

    ``load`` writes a word of the command memory; ``load_count`` sets the number of commands and restarts at the first.
    With ``refill`` the command memory is a ring: ``load`` appends a word while the program runs, and ``takes`` tells
    that a command is consumed and its entry free. While ``run`` is 1 the controller requests one packet a cycle from
    its memory, at most ``prefetch_packets`` ahead, and sends.
    On a mesh column whose partial sums are added (``reduces``) a command is a round of partial sums instead; ``hold``
    is back-pressure from the edge: no sums are ordered while it is 1.
    """

    def __init__(self, sizes: FabricSizes, places: int, serial: bool) -> None:
        self.sizes, self.places, self.serial = sizes, places, serial
        self.command = sizes.command(places, serial)
        tiles = sizes.shape.accumulator_tiles
        members: dict[str, In | Out] = {
            "run": In(1),
            "reduces": In(1),
            "load": In(1),
            "load_address": In(bits_for(sizes.command_depth - 1)),
            "load_word": In(self.command),
            "load_count": In(1),
            "count": In(COUNT_BITS),
            "refill": In(1),
            "takes": Out(1),
            "memory": Out(memory_port(sizes)),
            "slot_credits": In(data.ArrayLayout(bits_for(tiles), places)),
            "link": Out(sizes.link(places, serial)),
            "sends": Out(1),
            "is_done": Out(1),
        }
        if sizes.gates_units:
            members["awake"] = Out(1)
        if serial:
            members["queue_credits"] = In(places)
        else:
            members |= {
                "closes": In(places),
                "hold": In(1),
                "sums_start": Out(1),
                "sums_flit": Out(bits_for(sizes.most_sum_flits)),
                "sums_last": Out(1),
                "sums_done": Out(1),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Elaboratable:
        """Two read pointers into the command memory: one requests from memory, one sends."""
        m, sizes = Module(), self.sizes
        self._changes: list[Value] = []  # 1 in cycles in which a register may change
        depth = max(2, sizes.command_depth)
        m.submodules.commands = memory = Memory(shape=self.command, depth=depth, init=[])
        write, ask_port, send_port = memory.write_port(), memory.read_port(), memory.read_port()
        moves, asks = Signal(), Signal()
        to_send, to_ask = self._count_commands(m, moves, asks)
        m.d.comb += [
            write.en.eq(self.load),
            write.addr.eq(Mux(self.refill, self._place(m, depth, self.load, "fill")[0], self.load_address)),
            write.data.eq(self.load_word),
            send_port.addr.eq(self._place(m, depth, moves, "send")[1]),
            ask_port.addr.eq(self._place(m, depth, asks, "ask")[1]),
            self.takes.eq(moves),
            self.memory.ask.eq(asks),
            self.memory.address.eq(ask_port.data.address),
            self.memory.flits.eq(ask_port.data.flits),
            self.memory.transposed.eq(ask_port.data.transposed),
        ]
        has_command = Signal()
        m.d.comb += has_command.eq(self.run & (to_send != 0))
        sends_packets = self.run if self.serial else self.run & ~self.reduces
        open_requests = Signal(range(sizes.shape.prefetch_packets + 1))
        m.d.comb += asks.eq(
            sends_packets & (to_ask != 0) & ((open_requests != sizes.shape.prefetch_packets) | self.sends)
        )
        m.d.sync += open_requests.eq(open_requests + asks - self.sends)
        left = Signal(COUNT_BITS)
        m.d.sync += left.eq(Mux(self.load_count, self.count, left - moves))
        command = send_port.data
        self._send(m, command, has_command)
        if self.serial:
            m.d.comb += [moves.eq(self.sends), self.is_done.eq(left == 0)]
        else:
            starts, rests = self._order_sums(m, command, has_command)
            m.d.comb += [moves.eq(self.sends | starts), self.is_done.eq((left == 0) & rests)]
        return self._stopped_without_work(m, asks | moves) if sizes.gates_units else m

    def _stopped_without_work(self, m: Module, moves: Value) -> Elaboratable:
        """Awake while a register may change, and in the cycle after a load, in which the new word is read."""
        loads, loaded = self.load | self.load_count, Signal()
        m.d.sync += loaded.eq(loads)
        returned = (self.slot_credits, self.queue_credits if self.serial else self.closes)
        credits = (Value.cast(each).any() for each in returned)
        m.d.comb += self.awake.eq(any_of([loads, loaded, moves, *credits, *self._changes]))
        return stopped_unless(self.awake, m)

    def _count_commands(self, m: Module, moves: Signal, asks: Signal) -> tuple[Signal, Signal]:
        """Commands loaded and not yet sent, and those not yet requested; a new one counts once it can be read."""
        to_send = Signal(range(self.sizes.command_depth + 1))
        to_ask = Signal.like(to_send)  # unused for rounds of partial sums
        came = Signal()
        m.d.sync += came.eq(self.load & self.refill)
        self._changes.append(came)
        for there, leaves in ((to_send, moves), (to_ask, asks)):
            with m.If(self.load_count):
                m.d.sync += there.eq(Mux(self.refill, 0, self.count))
            with m.Else():
                m.d.sync += there.eq(there + came - leaves)
        return to_send, to_ask

    def _place(self, m: Module, depth: int, moves: Value, name: str) -> tuple[Signal, Signal]:
        """A pointer into the command ring and its value in the next cycle; it advances if ``moves``."""
        place, following = Signal(range(depth), name=f"{name}_place"), Signal(range(depth), name=f"{name}_following")
        m.d.comb += following.eq(Mux(moves, Mux(place == depth - 1, 0, place + 1), place))
        m.d.sync += place.eq(Mux(self.load_count, 0, following))
        return place, following

    def _send(self, m: Module, command: data.View, has_command: Value) -> None:
        """Send the head packet when it has been fetched, the link is free and all destinations have credit."""
        sizes, shape = self.sizes, self.sizes.shape
        packets, flits_left = Signal(range(shape.prefetch_packets + 1)), Signal(range(sizes.tile_flits + 1))
        came, late, outside = self._arrivals(m)
        could, blocked, fresh = Signal(), Signal(), Signal()
        has_packet = has_command if self.serial else has_command & ~self.reduces
        m.d.comb += [
            could.eq(has_packet & (packets != 0) & (flits_left == 0)),
            self.sends.eq(could & self._has_room(m, command)),
            fresh.eq(came & (packets == 1) & ~late),
        ]
        first = self.memory.valid & self.memory.first
        m.d.sync += [packets.eq(packets + first - self.sends), blocked.eq(could & ~self.sends)]
        with m.If(self.sends):
            m.d.sync += flits_left.eq(command.flits - 1)
        with m.Elif(flits_left != 0):
            m.d.sync += flits_left.eq(flits_left - 1)
        reason = Mux(blocked, IMBALANCE, Mux(fresh, Mux(outside, MEMORY, FILL), MESH))
        moves = Signal()
        m.d.comb += moves.eq(self.sends | (flits_left != 0))
        beside = Signal(self.link.shape())
        m.d.sync += beside.valid.eq(moves)
        m.d.sync += beside.last.eq(Mux(self.sends, command.flits == 1, flits_left == 1))
        with m.If(self.sends):
            m.d.sync += [
                beside.parallel.eq(command.parallel),
                beside.packed.eq(command.packed),
                beside.destinations.eq(command.destinations),
                beside.reason.eq(reason),
            ]
            if self.serial:
                m.d.sync += beside.headers.eq(command.headers)
        m.d.comb += [self.link.eq(beside), self.link.data.eq(self._flit(m, moves))]
        self._changes += [self.memory.valid, moves, beside.valid, blocked != (could & ~self.sends)]

    def _arrivals(self, m: Module) -> tuple[Signal, Value, Value]:
        """Whether a first flit came in the last cycle; of the oldest packet: whether it was late, and from outside."""
        depth = self.sizes.shape.prefetch_packets
        m.submodules.arrivals = memory = Memory(shape=2, depth=max(2, depth), init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        came, write_place, read_place = Signal(), Signal(range(max(2, depth))), Signal(range(max(2, depth)))
        first = self.memory.valid & self.memory.first
        m.d.comb += [
            write.en.eq(first),
            write.addr.eq(write_place),
            write.data.eq(Cat(self.memory.late, self.memory.outside)),
            read.addr.eq(read_place),
        ]
        m.d.sync += came.eq(first)
        self._changes.append(came)
        with m.If(first):
            m.d.sync += write_place.eq(wrapped(write_place + 1, depth))
        with m.If(self.sends):
            m.d.sync += read_place.eq(wrapped(read_place + 1, depth))
        return came, read.data[0], read.data[1]

    def _flit(self, m: Module, moves: Value) -> Value:
        """The FIFO of prefetched flits, a block RAM: a flit that moves is on the link a cycle later."""
        sizes = self.sizes
        depth = max(2, sizes.shape.prefetch_packets * sizes.tile_flits)
        m.submodules.flits = memory = Memory(shape=sizes.flit_bits, depth=depth, init=[])
        write, read = memory.write_port(), memory.read_port()
        write_place, read_place = Signal(range(depth)), Signal(range(depth))
        m.d.comb += [
            write.en.eq(self.memory.valid),
            write.addr.eq(write_place),
            write.data.eq(self.memory.data),
            read.addr.eq(read_place),
        ]
        with m.If(self.memory.valid):
            m.d.sync += write_place.eq(wrapped(write_place + 1, depth))
        with m.If(moves):
            m.d.sync += read_place.eq(wrapped(read_place + 1, depth))
        return read.data

    def _has_room(self, m: Module, command: data.View) -> Value:
        """Whether there is a credit of every destination: queue entries for serial tiles, slots for blocks."""
        shape = self.sizes.shape
        rooms = []
        for place in range(self.places):
            taken = self.sends & command.destinations[place]
            slots = Signal(range(shape.parallel_slots + 1), init=shape.parallel_slots, name=f"slots_{place}")
            is_parallel = command.parallel if self.serial else 1
            m.d.sync += slots.eq(slots + self.slot_credits[place] - (taken & is_parallel))
            room = slots != 0
            if self.serial:
                queue = Signal(range(shape.queue_packets + 1), init=shape.queue_packets, name=f"queue_{place}")
                m.d.sync += queue.eq(queue + self.queue_credits[place] - (taken & ~command.parallel))
                room = Mux(command.parallel, slots != 0, queue != 0)
            rooms.append(room | ~command.destinations[place])
        return all_of(rooms)

    def _order_sums(self, m: Module, command: data.View, has_command: Value) -> tuple[Signal, Value]:
        """Start the partial sums of a round once its clusters have closed it; whether it starts, whether none move."""
        starts, left = Signal(), Signal(range(self.sizes.most_sum_cycles + 1))
        ready = []
        for place in range(self.places):
            closed = Signal(range(3), name=f"closed_{place}")
            now = closed + (self.closes[place] & self.reduces)
            m.d.sync += closed.eq(now - (starts & command.destinations[place]))
            ready.append((now != 0) | ~command.destinations[place])
        m.d.comb += [
            starts.eq(has_command & self.reduces & (left == 0) & all_of(ready) & ~self.hold),
            self.sums_done.eq((left == 1) & ~self.hold),
        ]
        with m.If(starts):
            m.d.sync += left.eq(command.sum_cycles - 1)
        with m.Elif((left != 0) & ~self.hold):
            m.d.sync += left.eq(left - 1)
        flits, stride = Signal.like(command.sum_flits), Signal.like(command.sum_stride)
        flit, gap, more = Signal.like(flits), Signal.like(stride), Signal()
        goes_on = Signal()
        m.d.comb += [
            goes_on.eq(more & (gap == 0) & ~self.hold),
            self.sums_start.eq(starts | goes_on),
            self.sums_flit.eq(Mux(starts, 0, flit)),
            self.sums_last.eq(Mux(starts, command.sum_flits == 1, flit == flits - 1)),
        ]
        with m.If(starts):
            m.d.sync += [
                flits.eq(command.sum_flits),
                stride.eq(command.sum_stride),
                flit.eq(1),
                gap.eq(command.sum_stride - 1),
                more.eq(command.sum_flits != 1),
            ]
        with m.Elif(goes_on):
            m.d.sync += [flit.eq(flit + 1), gap.eq(stride - 1), more.eq(~self.sums_last)]
        with m.Elif(more & (gap != 0)):
            m.d.sync += gap.eq(gap - 1)
        self._changes += [(left != 0) & ~self.hold, goes_on, more & (gap != 0)]
        return starts, left == 0
