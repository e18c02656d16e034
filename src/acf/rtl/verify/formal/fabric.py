"""Properties of the fabric's lines, receivers and credits; inputs are free, ``holds`` must stay 1."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.fabric.controller import Controller
from acf.rtl.design.fabric.line import CreditLine, PacketLine, ResultLine, turns
from acf.rtl.design.fabric.receiver import TileReceiver
from acf.rtl.design.fabric.sizes import FabricSizes


def _past(m: Module, value: Value, cycles: int, name: str) -> list[Value]:
    """``value`` now and in each of the ``cycles`` before, 0 before the beginning."""
    past = [value]
    for age in range(cycles):
        kept = Signal.like(value, name=f"{name}_{age}")
        m.d.sync += kept.eq(past[-1])
        past.append(kept)
    return past


class CopiesReachTheirDestinations(Component):
    """A line copies every flit to each of its destinations, unchanged and after its hops, and to no other router."""

    def __init__(self, sizes: FabricSizes, places: int, serial: bool) -> None:
        self.sizes, self.places, self.serial = sizes, places, serial
        self.longest = sizes.shape.hop_cycles * places - 1
        super().__init__({"sent": In(sizes.link(places, serial)), "holds": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Compare with what was sent as long ago as the hops take."""
        m, hop = Module(), self.sizes.shape.hop_cycles
        m.submodules.line = line = PacketLine(self.sizes, self.places, self.serial)
        m.d.comb += line.sent.eq(self.sent)
        past = _past(m, self.sent, self.longest, "sent")
        checks = []
        for place in range(self.places):
            then, copy = past[hop * (place + 1) - 1], getattr(line, f"copy_{place}")
            meant = then["valid"] & then["destinations"][place]
            same = Cat(*(copy[name] == then[name] for name in ("last", "parallel", "packed", "reason", "data"))).all()
            if self.serial:
                header = self.sizes.header.size
                same &= copy["headers"] == then["headers"][place * header : (place + 1) * header]
            checks += [copy["valid"] == meant, ~meant | same]
        m.d.comb += self.holds.eq(Cat(*checks).all())
        return m


class CreditsComeBackOnce(Component):
    """Every credit that a cluster returns reaches the controller once, after its hops."""

    def __init__(self, sizes: FabricSizes, places: int, width: int) -> None:
        self.sizes, self.places, self.width = sizes, places, width
        self.longest = sizes.shape.hop_cycles * places - 1
        super().__init__({"given": In(data.ArrayLayout(width, places)), "holds": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Compare with what was given as long ago as the hops take."""
        m, hop = Module(), self.sizes.shape.hop_cycles
        m.submodules.line = line = CreditLine(self.sizes, self.places, self.width)
        m.d.comb += line.given.eq(self.given)
        past = _past(m, self.given, self.longest, "given")
        same = [line.back[place] == past[hop * (place + 1) - 1][place] for place in range(self.places)]
        m.d.comb += self.holds.eq(Cat(*same).all())
        return m


class ResultsNeverMeet(Component):
    """Result flits sent in their time slots never collide: each is at the edge after its hops, with its column.

    ``wants``: a cluster has a flit. Without time slots (``in_turns`` False) flits must collide.
    """

    def __init__(self, sizes: FabricSizes, in_turns: bool = True) -> None:
        self.sizes, self.in_turns = sizes, in_turns
        columns = sizes.shape.mesh_columns
        self.longest = sizes.shape.hop_cycles * columns
        layout = data.ArrayLayout(sizes.flit_bits, columns)
        super().__init__({"wants": In(columns), "results": In(layout), "holds": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """The flit that was sent as many cycles ago as its hops take is at the edge; there is at most one."""
        m, shape = Module(), self.sizes.shape
        slots = turns(m, Const(1, 1), shape.result_period_cycles, shape.mesh_columns)
        m.submodules.line = line = ResultLine(self.sizes)
        sends = Signal(shape.mesh_columns)
        m.d.comb += [
            sends.eq(self.wants & slots if self.in_turns else self.wants),
            line.valid.eq(sends),
            line.results.eq(self.results),
        ]
        past_sends = _past(m, sends, self.longest, "sends")
        past_results = _past(m, self.results, self.longest, "results")
        checks, due = [], []
        for column in range(shape.mesh_columns):
            age = shape.hop_cycles * (column + 1)
            here = past_sends[age][column]
            same = (line.edge["column"] == column) & (line.edge["data"] == past_results[age][column])
            checks.append(~here | same)
            due.append(here)
        m.d.comb += self.holds.eq(Cat(*checks, line.edge["valid"] == Cat(*due).any()).all())
        return m


class FlitsFillTheRing(Component):
    """Every flit of a tile has a word of its own, and tiles follow each other round the ring of places.

    A tile has as many flits as it may, at most; ``whole`` is 1 with its last flit and in no other cycle.
    """

    def __init__(self, sizes: FabricSizes, places: int) -> None:
        self.sizes, self.places = sizes, places
        super().__init__({"valid": In(1), "last": In(1), "packed": In(1), "data": In(sizes.flit_bits), "holds": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Count flits and places beside the receiver; both show all of their state."""
        m, sizes = Module(), self.sizes
        m.submodules.receiver = receiver = TileReceiver(sizes, self.places)
        flit, place = Signal(range(max(2, sizes.tile_flits))), Signal(range(max(2, self.places)))
        last = Signal()
        m.d.comb += [
            last.eq(self.last | (flit == sizes.tile_flits - 1)),
            receiver.valid.eq(self.valid),
            receiver.last.eq(last),
            receiver.packed.eq(self.packed),
            receiver.data.eq(self.data),
            self.holds.eq(
                (receiver.word == place * sizes.tile_flits + flit)
                & (receiver.place == place)
                & (place < self.places)
                & (receiver.whole == (self.valid & last))
            ),
        ]
        with m.If(self.valid):
            m.d.sync += flit.eq(Mux(last, 0, flit + 1))
            with m.If(last):
                m.d.sync += place.eq(Mux(place == self.places - 1, 0, place + 1))
        return m


class BitmapsShowTheValues(Component):
    """When a tile is complete, its bitmap is 1 where the value is not zero, or, of a packed tile, as the payload says.

    ``watched`` is the index of the value to check: any, and constant over time.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        super().__init__(
            {
                "valid": In(1),
                "packed": In(1),
                "last": In(1),
                "data": In(sizes.flit_bits),
                "watched": In(range(sizes.tile_values)),
                "holds": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Track what the arriving tile says about the watched value."""
        m, sizes = Module(), self.sizes
        m.submodules.receiver = receiver = TileReceiver(sizes, 2)
        started, watched, packed = Signal(), Signal(range(sizes.tile_values)), Signal()
        flit, seen = Signal(range(max(2, sizes.tile_flits))), Signal()
        is_packed, last, now, index = Signal(), Signal(), Signal(), Signal(range(sizes.tile_values))
        width, bitmap_flits = sizes.flit_values, -(-sizes.tile_values // sizes.flit_bits)
        values = Array(self.data[16 * place : 16 * place + 15].any() for place in range(width))
        bits = Array(self.data[place] for place in range(sizes.flit_bits))
        in_full = (flit == index // width) & values[index % width]
        told = (flit == index // sizes.flit_bits) & bits[index % sizes.flit_bits]
        last_packed = self.last & (flit >= bitmap_flits - 1)
        m.d.comb += [
            index.eq(Mux(started, watched, self.watched)),
            is_packed.eq(Mux(flit == 0, self.packed, packed)),
            last.eq((flit == sizes.tile_flits - 1) | (is_packed & last_packed)),
            now.eq((seen & (flit != 0)) | Mux(is_packed, told, in_full)),
            receiver.valid.eq(self.valid),
            receiver.packed.eq(is_packed),
            receiver.last.eq(last),
            receiver.data.eq(self.data),
            self.holds.eq(~receiver.whole | (Array(receiver.bitmap)[index] == now)),
        ]
        m.d.sync += [started.eq(1), watched.eq(index)]
        with m.If(self.valid):
            m.d.sync += [flit.eq(Mux(last, 0, flit + 1)), seen.eq(now), packed.eq(is_packed)]
        return m


class CreditsKeepQueuesFromOverflowing(Component):
    """A row's controller, its line, and clusters that hold what they are sent: none holds more than it has room for.

    Commands are any that the environment loads, memory answers when it likes, clusters free a place when they like;
    ``takes`` and ``frees`` of a cluster and a kind (tile, block) are what they hold. ``extra_room``: places that the
    controller believes in and that are not there, which must break it.
    """

    def __init__(self, sizes: FabricSizes, places: int, extra_room: int = 0) -> None:
        self.sizes, self.places, self.extra_room = sizes, places, extra_room
        command = sizes.command(places, serial=True)
        super().__init__(
            {
                "run": In(1),
                "load": In(1),
                "load_address": In(bits_for(sizes.command_depth - 1)),
                "load_word": In(command),
                "load_count": In(1),
                "count": In(bits_for(sizes.command_depth)),
                "answers": In(1),
                "frees": In(2 * places),
                "holds": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Whole tiles and blocks of one flit; memory answers what was asked, in order."""
        m, sizes, shape = Module(), self.sizes, self.sizes.shape
        m.submodules.controller = controller = Controller(sizes, self.places, serial=True)
        m.submodules.line = line = PacketLine(sizes, self.places, serial=True)
        width = bits_for(shape.accumulator_tiles)
        m.submodules.slot_credits = slot_credits = CreditLine(sizes, self.places, width)
        m.submodules.queue_credits = queue_credits = CreditLine(sizes, self.places, 1)
        asked = Signal(range(shape.prefetch_packets + 1))
        answers = Signal()
        one_flit = self.load_word["flits"] == 1
        m.d.comb += [
            controller.run.eq(self.run),
            controller.reduces.eq(1),
            controller.load.eq(self.load & one_flit),
            controller.load_address.eq(self.load_address),
            controller.load_word.eq(self.load_word),
            controller.load_count.eq(self.load_count & ~self.run),
            controller.count.eq(self.count),
            answers.eq(self.answers & (asked != 0)),
            controller.memory.valid.eq(answers),
            controller.memory.first.eq(answers),
            controller.slot_credits.eq(slot_credits.back),
            controller.queue_credits.eq(queue_credits.back),
            line.sent.eq(controller.link),
        ]
        m.d.sync += asked.eq(asked + controller.memory.ask - answers)
        fits = []
        for place in range(self.places):
            flit = getattr(line, f"copy_{place}")
            for kind, room in ((0, shape.queue_packets), (1, shape.parallel_slots)):
                held = Signal(range(room + 3), name=f"held_{kind}_{place}")
                takes = flit["valid"] & flit["last"] & (flit["parallel"] == kind)
                gives = self.frees[2 * place + kind] & (held != 0)
                m.d.sync += held.eq(held + takes - gives)
                m.d.comb += (slot_credits if kind else queue_credits).given[place].eq(gives)
                fits.append(held <= room - self.extra_room)
        m.d.comb += self.holds.eq(Cat(*fits).all())
        return m
