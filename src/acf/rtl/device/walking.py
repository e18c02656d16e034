"""Running products from their descriptors: index memories and walking controllers, as a device connects them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib.wiring import connect
from amaranth.utils import bits_for

from acf.errors import RtlError
from acf.lowering import FabricShape
from acf.lowering.descriptor import DESCRIPTOR_WORDS, FIELDS, ProductDescriptor
from acf.rtl.design.axi.read_arbiter import ReadArbiter
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.index.index_controller import IndexSizes
from acf.rtl.design.primitives.bits import all_of, any_of
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.design.primitives.wires import forward
from acf.rtl.device.product_walker import ProductWalker
from acf.rtl.device.topology.unit import TopologySizes

PAGES = ("serial_page", "parallel_page", "result_page", "result_pages", "channel_pages")
"""Fields of a descriptor that say where operands and results lie."""


@dataclass(frozen=True)
class WalkerOption:
    """The largest product of a device that walks: an index of ``index_words``, and the limits of `IndexSizes`.

    Of two ``controllers``, each with an index memory of its own, one sets the next product up while the other walks.
    ``moves``: blocks that one topology update can move, in a device that has a vector unit too; 0: it has no topology
    unit. ``sharing``: controllers that walk each product side by side, each for its share of the lines.
    """

    index_words: int = 16384
    blocks: int = 4096
    column_tiles: int = 256
    depths: int = 64
    controllers: int = 1
    moves: int = 0
    sharing: int = 1

    def __post_init__(self) -> None:
        if self.controllers not in (1, 2):
            raise RtlError(
                f"controllers {self.controllers} of a device must be 1, or 2 to set the next product up; the products "
                "of a device run one after the other"
            )

    @classmethod
    def holding(cls, products: Sequence[ProductDescriptor], controllers: int = 1, moves: int = 0) -> "WalkerOption":
        """The smallest option, in powers of two, that every one of ``products`` fits in."""

        def most(name: str, more: int = 0) -> int:
            needed: int = max(getattr(each, name) for each in products) + more
            return 1 << max(2, needed - 1).bit_length()

        words = max(64, most("index_words", DESCRIPTOR_WORDS))
        row_tiles = max((-(-each.rows // each.tile) for each in products if each.split_k), default=1)
        rounds = max((each.column_rounds for each in products if not each.split_k), default=1)
        columns = 1 << max(2, max(row_tiles, rounds) - 1).bit_length()
        columns = max(columns, most("column_tiles"))
        return cls(words, most("blocks"), columns, most("k_tiles"), controllers, moves)

    def topology(self, shape: FabricShape) -> TopologySizes | None:
        """The topology unit on a fabric; rows of a layer's blocks are output columns of its input gradient."""
        if not self.moves:
            return None
        layer = (self.column_tiles, self.column_tiles, self.blocks, self.moves)
        return TopologySizes(*layer, shape.mesh_columns, shape.accumulator_tiles)

    def sizes(self, fabric: FabricSizes) -> IndexSizes:
        """The limits of a controller."""
        return IndexSizes(fabric, self.blocks, self.column_tiles, self.depths, self.sharing)


class Walking:
    """What a device takes from its walkers; of a device without one everything is 0, and a product to walk fails.

    ``active``: the program that runs, or ran last, is walked. ``start`` begins the next one, and ``start_product`` that
    or one that the host commands; it waits while ``holds``. ``split_k``: its partial sums are added, over ``groups`` of
    mesh columns. ``gaps``: lines whose adder is told of sums without it, where ``gap_ready``. ``is_loaded``: its index
    is on chip; ``is_bad``: it cannot run; ``is_finished``: all its commands are made. ``busy``: a product is under way;
    ``is_full``: no more can be started, and ``loses`` one that is.
    """

    def __init__(self, limits: IndexSizes, page_bits: int) -> None:
        sizes, lines = limits.fabric, limits.fabric.shape.mesh_rows + limits.fabric.shape.mesh_columns
        self.active, self.start, self.busy, self.is_loaded, self.is_done = (
            Signal(name=f"walking_{name}") for name in ("active", "start", "busy", "is_loaded", "is_done")
        )
        self.start_product = Signal(name="start_product")
        self.failed, self.is_refused, self.is_full, self.loses, self.beat_valid = (
            Signal(name=f"walking_{name}") for name in ("failed", "is_refused", "is_full", "loses", "beat_valid")
        )
        self.load, self.takes, self.gaps, self.gap_ready = (
            Signal(lines, name=f"walking_{name}") for name in ("load", "takes", "gaps", "gap_ready")
        )
        self.split_k, self.is_finished = Signal(name="walking_split_k"), Signal(name="walking_is_finished")
        self.groups = Signal(bits_for(sizes.shape.mesh_columns), name="walking_groups")
        self.load_words = [
            Signal(limits.command_bits, name=f"walking_load_word_{number}") for number in range(limits.sharing)
        ]
        self.serial_page, self.parallel_page, self.result_page, self.result_pages, self.channel_pages = (
            Signal(page_bits, name=f"walking_{name}") for name in PAGES
        )
        self.edge_cycles = Signal(8, name="walking_edge_cycles")
        self.after_vectors = Signal(32, name="walking_after_vectors")
        self.holds, self.is_bad = Signal(name="walking_holds"), Signal(name="walking_is_bad")
        self.walkers: list[Any] = []
        self._shape, self._limits = sizes.shape, limits

    @property
    def mesh_columns(self) -> int:
        """Columns of the mesh."""
        return self._shape.mesh_columns

    def load_word(self, line: int) -> Signal:
        """The command of a line in a cycle of ``load``."""
        return self.load_words[self._limits.share_of(line)]

    def operand_page(self, line: int, master: int) -> Value:
        """The page where a line's operand begins, in the channel of its master."""
        page = self.serial_page if line < self._shape.mesh_rows else self.parallel_page
        return page + master * self.channel_pages

    def first_page(self, line: int, master: int) -> Value:
        """The page of a line's first result stream, in the channel of its master; a mesh column has one."""
        rows, columns = self._shape.mesh_rows, self._shape.mesh_columns
        stream = line * columns if line < rows else line - rows
        return self.result_page + stream * self.result_pages + master * self.channel_pages

    def share_bus(self, m: Module, outer: Any, fetcher: Any) -> None:
        """The read channels of the first master: the fetcher's and, by turns, those of the index memories."""
        if not self.walkers:
            forward(m, outer, fetcher.bus)
            return
        m.submodules.read_arbiter = arbiter = ReadArbiter(fetcher.spec, 1 + len(self.walkers))
        for number, client in enumerate([fetcher, *self.walkers]):
            connect(m, client.bus, arbiter.clients[number])
        forward(m, outer, arbiter.bus)


def place_walking(m: Module, device: Any, registers: Any, sequencer: Any) -> Walking:
    """Add walkers to a device that was built with them, and say which program runs."""
    option: WalkerOption | None = device.walker
    limits = (option or WalkerOption()).sizes(device.sizes)
    walking = Walking(limits, len(registers.result_stride))
    commanded = Signal()
    m.d.comb += commanded.eq(registers.start & ~registers.walks & ~walking.busy & ~sequencer.is_busy)
    with m.If(walking.start):
        m.d.sync += walking.active.eq(1)
    with m.Elif(commanded):
        m.d.sync += walking.active.eq(0)
    m.d.comb += walking.start_product.eq(walking.start | commanded)
    if option is None:
        m.d.comb += [
            walking.start.eq(registers.start & registers.walks & ~sequencer.is_busy),
            walking.is_loaded.eq(1),
            walking.is_full.eq(sequencer.is_busy),
            walking.is_refused.eq(walking.active & sequencer.run),
        ]
        return walking
    walking.walkers = [
        place(m, f"walker_{number}", ProductWalker(device.axi, limits, option.index_words), "product_walker")
        for number in range(option.controllers)
    ]
    m.d.comb += walking.gap_ready[: device.sizes.shape.mesh_rows].eq(-1)
    turn = _take_turns(m, walking, registers, sequencer)
    _show_current(m, walking, sequencer, turn)
    _keep_room(m, walking, sequencer, turn, device.sizes)
    return walking


def _take_turns(m: Module, walking: Walking, registers: Any, sequencer: Any) -> Signal:
    """Give every product to the next walker, and run the products in that order; returns whose product is next.

    A product that stops the device takes the one behind it along.
    """
    walkers = walking.walkers
    fills, turn = Signal(range(max(2, len(walkers))), name="fills"), Signal(range(max(2, len(walkers))), name="turn")
    asks, stops = Signal(name="asks_to_walk"), Signal(name="stops_walking")
    free = Array(walker.is_free for walker in walkers)
    m.d.comb += [
        asks.eq(registers.start & registers.walks),
        stops.eq(walking.active & sequencer.run & sequencer.stop),
        walking.is_full.eq(~free[fills]),
        walking.loses.eq(asks & walking.is_full),
        walking.busy.eq(~all_of([walker.is_free for walker in walkers])),
        walking.start.eq(~free[turn] & ~sequencer.is_busy & ~walking.holds),
    ]
    for number, walker in enumerate(walkers):
        m.d.comb += [
            walker.start.eq(asks & (fills == number)),
            walker.page.eq(registers.command_pages[0]),
            walker.release.eq(stops | (walking.active & sequencer.ends & (turn == number))),
        ]
    following = Signal.like(fills)
    m.d.comb += following.eq(Mux(asks & ~walking.is_full, _after(fills, len(walkers)), fills))
    m.d.sync += fills.eq(following)
    with m.If(stops):
        m.d.sync += turn.eq(following)
    with m.Elif(walking.active & sequencer.ends):
        m.d.sync += turn.eq(_after(turn, len(walkers)))
    return turn


def _after(number: Signal, count: int) -> Value:
    return Mux(number == count - 1, 0, number + 1)


def _show_current(m: Module, walking: Walking, sequencer: Any, turn: Signal) -> None:
    """State, command and descriptor of the walker whose product runs."""
    walkers, runs = walking.walkers, Signal(name="walking_runs")
    m.d.comb += [
        runs.eq(walking.active & sequencer.run),
        walking.is_loaded.eq(Array(walker.is_loaded for walker in walkers)[turn]),
        walking.failed.eq(runs & Array(walker.failed for walker in walkers)[turn]),
        walking.is_refused.eq(runs & Array(walker.is_refused for walker in walkers)[turn]),
        walking.is_bad.eq(Array(walker.failed | walker.is_refused for walker in walkers)[turn]),
        *(
            word.eq(Array(walker.words[number] for walker in walkers)[turn])
            for number, word in enumerate(walking.load_words)
        ),
        walking.beat_valid.eq(any_of([walker.beat_valid for walker in walkers])),
    ]
    for name in (*PAGES, "edge_cycles", "after_vectors", "split_k"):
        m.d.comb += getattr(walking, name).eq(_described(walkers, name)[turn])
    columns, group_columns = walking.mesh_columns, _described(walkers, "group_columns")[turn]
    m.d.comb += walking.groups.eq(1)
    for size in range(1, columns + 1):
        if columns % size == 0:
            with m.If(group_columns == size):
                m.d.comb += walking.groups.eq(columns // size)


def _described(walkers: list[Any], name: str) -> Array[Any]:
    """A field of the descriptor of every walker."""
    at = FIELDS[name]
    return Array(walker.descriptor[at.word][at.low : at.low + at.bits] for walker in walkers)


def _keep_room(m: Module, walking: Walking, sequencer: Any, turn: Signal, sizes: FabricSizes) -> None:
    """Take a command for a line while its command memory has room; done once every command was sent."""
    walkers, empty = walking.walkers, []
    runs = [walking.active & sequencer.run & (turn == number) for number in range(len(walkers))]
    for line in range(sizes.shape.mesh_rows + sizes.shape.mesh_columns):
        held = Signal(range(sizes.command_depth + 1), name=f"held_{line}")
        has_room = Signal(name=f"has_room_{line}")
        m.d.comb += has_room.eq((held != sizes.command_depth) & walking.gap_ready[line])
        for walker, mine in zip(walkers, runs, strict=True):
            m.d.comb += walker.ready[line].eq(mine & has_room)
        offers = [walker.valid[line] & walker.ready[line] for walker in walkers]
        gaps = [offer & walker.gaps[line] for offer, walker in zip(offers, walkers, strict=True)]
        m.d.comb += [walking.gaps[line].eq(any_of(gaps)), walking.load[line].eq(any_of(offers) & ~walking.gaps[line])]
        m.d.sync += held.eq(Mux(sequencer.run, held + walking.load[line] - walking.takes[line], 0))
        empty.append(held == 0)
    finished = Array(walker.is_finished for walker in walkers)[turn]
    m.d.comb += [walking.is_finished.eq(finished), walking.is_done.eq(finished & all_of(empty))]
