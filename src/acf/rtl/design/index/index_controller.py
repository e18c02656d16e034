"""The index-walking controller: reads a product's descriptor and index and makes the commands of every line.

It runs output-stationary products whose output tiles are all kept; others it refuses (``is_refused``). A round is walked
twice: first to find the last k_step of every cluster, which closes its bank, then to make commands. Blocks of a k_step
come before the serial tiles that they meet, so a full command memory can never keep back what another line waits for.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.errors import RtlError
from acf.lowering.descriptor import DESCRIPTOR_WORDS, FIELDS, VERSION
from acf.rtl.design.fabric.sizes import ROUND_BITS, FabricSizes
from acf.rtl.design.index.block_walker import BlockWalker, WalkerSpec
from acf.rtl.design.index.owner_planner import OwnerPlanner
from acf.rtl.design.index.prefix_sum import PrefixSum

WORD_BITS = 32
POSITIONS = 1 << (WORD_BITS - 1)
"""Addresses from here on are answered with their own lower bits: the slots of blocks that are stored by k_tile."""

ORDER_BITS = 16
REFUSED_FLAGS = ("split_k", "masked")


@dataclass(frozen=True)
class IndexSizes:
    """The largest product of a controller: ``blocks`` of it, ``column_tiles`` output columns, ``depths`` k_tiles.

    ``depths`` limits only what the controller plans itself; with stored owners a descriptor's 16 bits do.
    """

    fabric: FabricSizes
    blocks: int = 4096
    column_tiles: int = 256
    depths: int = 64

    def __post_init__(self) -> None:
        for name in ("blocks", "column_tiles", "depths"):
            if getattr(self, name) < 2:
                raise RtlError(f"{name} {getattr(self, name)} of an index controller is less than 2; give more")

    @property
    def plans(self) -> bool:
        """Whether the controller can share output columns itself: there must be mesh columns to choose from."""
        return self.fabric.shape.mesh_columns > 1

    @property
    def command_bits(self) -> int:
        """Bits of the wider kind of command."""
        shape = self.fabric.shape
        row, column = (shape.mesh_columns, True), (shape.mesh_rows, False)
        return max(self.fabric.command(*each).size for each in (row, column))


class IndexController(Component):
    """``start`` runs the product whose descriptor begins at word 0 of the memory, with its index behind it.

    ``memory_data`` answers ``memory_address`` (in 32-bit words) one cycle later. A command is in ``word``, for ``line``,
    while ``valid``; it is taken in a cycle in which ``ready`` of its line is 1. ``busy`` holds from the cycle after
    ``start`` to the last command. ``is_refused``: the descriptor is none that this controller can run.
    """

    def __init__(self, sizes: IndexSizes) -> None:
        self.sizes = sizes
        shape = sizes.fabric.shape
        lines = shape.mesh_rows + shape.mesh_columns
        super().__init__(
            {
                "start": In(1),
                "memory_address": Out(WORD_BITS),
                "memory_data": In(WORD_BITS),
                "ready": In(lines),
                "valid": Out(1),
                "line": Out(bits_for(lines - 1)),
                "word": Out(sizes.command_bits),
                "busy": Out(1),
                "is_refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Set up (descriptor, addresses, owners), then round by round."""
        m = Module()
        self._make_state(m)
        self._make_units(m)
        with m.FSM(name="control") as control:
            self._set_up(m)
            self._find_owners(m)
            self._walk_round(m)
            self._send_rows(m)
            m.d.comb += self.busy.eq(~control.ongoing("IDLE"))
        return m

    # State and units.
    def _make_state(self, m: Module) -> None:
        shape = self.sizes.fabric.shape
        self._words = [Signal(WORD_BITS, name=f"descriptor_{number}") for number in range(DESCRIPTOR_WORDS)]
        self._place = Signal(WORD_BITS)  # counts through whatever a state reads
        self._column_round, self._row_round = Signal(ORDER_BITS), Signal(ORDER_BITS)
        self._order, self._k_tile = Signal(ORDER_BITS), Signal(ORDER_BITS)
        self._order_base, self._round_base = Signal(WORD_BITS), Signal(WORD_BITS)
        self._emits = Signal()  # the second pass
        self._batch = Signal(WORD_BITS)
        self._row, self._group = Signal(range(max(2, shape.mesh_rows))), Signal(range(max(2, shape.mesh_columns)))
        columns = range(shape.mesh_columns)
        tiles = shape.accumulator_tiles
        self._has_tiles = [Signal(shape.mesh_columns, name=f"has_tiles_{row}") for row in range(shape.mesh_rows)]
        self._present = Signal(shape.mesh_columns)
        self._owned = [Signal(bits_for(tiles), name=f"owned_{place}") for place in columns]
        self._count = Array(Signal(bits_for(tiles), name=f"count_{place}") for place in columns)
        self._sums = Array(Signal(tiles, name=f"sums_{place}") for place in columns)
        self._edge_valid = Array(Signal(name=f"edge_valid_{place}") for place in columns)
        self._edge = Array(Signal(bits_for(tiles - 1), name=f"edge_{place}") for place in columns)
        clusters = [(row, place) for row in range(shape.mesh_rows) for place in columns]
        self._last = {each: Signal(ORDER_BITS, name=f"last_{each[0]}_{each[1]}") for each in clusters}
        self._joined = {each: Signal(name=f"joined_{each[0]}_{each[1]}") for each in clusters}
        self._rounds = {each: Signal(ROUND_BITS, name=f"rounds_{each[0]}_{each[1]}") for each in clusters}

    def _field(self, name: str) -> Value:
        """A field of the descriptor."""
        at = FIELDS[name]
        return self._words[at.word][at.low : at.low + at.bits]

    def _at(self, name: str) -> Value:
        """The address of a part of the index."""
        return self._field(name) + DESCRIPTOR_WORDS

    def _make_units(self, m: Module) -> None:
        sizes, shape = self.sizes, self.sizes.fabric.shape
        spec = WalkerSpec(block_height=1, block_width=1, index_bits=WORD_BITS)
        m.submodules.walker = self._walker = walker = BlockWalker(spec)
        m.submodules.slot_sums = self._slot_sums = PrefixSum(1, 7, WORD_BITS)
        m.submodules.tile_sums = self._tile_sums = PrefixSum(4, 7, WORD_BITS)
        m.submodules.addresses = addresses = Memory(shape=WORD_BITS, depth=sizes.blocks, init=[])
        m.submodules.owners = owners = Memory(shape=WORD_BITS, depth=sizes.column_tiles, init=[])
        width = bits_for(shape.accumulator_tiles)
        m.submodules.owned = owned = Memory(shape=shape.mesh_columns * width, depth=sizes.column_tiles, init=[])
        self._address_in, self._address_out = addresses.write_port(), addresses.read_port(domain="comb")
        self._owner_in, self._owner_out = owners.write_port(), owners.read_port(domain="comb")
        self._owned_in, self._owned_out = owned.write_port(granularity=width), owned.read_port(domain="comb")
        if sizes.plans:
            planner = OwnerPlanner(shape.mesh_columns, sizes.column_tiles, sizes.depths, shape.accumulator_tiles)
            m.submodules.planner = self._planner = planner
        plans = self._planner.is_ready if sizes.plans else 0  # walks all k_tiles, not one
        owner = self._owner_out.data
        self._owner_place, self._owner_round = owner[8:16], owner[16:32]
        self._owner_column = owner[: bits_for(shape.mesh_columns - 1)]
        was_position, position = Signal(), Signal(WORD_BITS)
        m.d.sync += [was_position.eq(walker.memory_address[-1]), position.eq(walker.memory_address[:-1])]
        m.d.comb += [
            walker.memory_data.eq(Mux(was_position, position, self.memory_data)),
            walker.transposed.eq(~self._field("direct")),
            walker.slots_base.eq(Mux(self._field("direct"), POSITIONS, self._at("slots_at"))),
            walker.indices_base.eq(self._at("entries_at")),
            walker.lines.eq(Mux(plans, self._field("k_tiles"), 1)),
            walker.offsets_base.eq(Mux(plans, 0, self._k_tile) + DESCRIPTOR_WORDS),
            self._owner_out.addr.eq(walker.index[:16]),
            self._address_out.addr.eq(walker.address),
        ]

    # Descriptor, addresses of slots.
    def _set_up(self, m: Module) -> None:
        with m.State("IDLE"):
            m.d.sync += self._place.eq(0)
            with m.If(self.start):
                m.d.sync += [self.is_refused.eq(0), *(each.eq(0) for each in self._rounds.values())]
                m.next = "DESCRIBE"
        with m.State("DESCRIBE"):
            m.d.comb += self.memory_address.eq(self._place)
            m.d.sync += self._place.eq(self._place + 1)
            for number, word in enumerate(self._words):
                with m.If(self._place == number + 1):
                    m.d.sync += word.eq(self.memory_data)
            with m.If(self._place == DESCRIPTOR_WORDS):
                m.next = "CHECK"
        with m.State("CHECK"):
            m.d.sync += self._place.eq(0)
            m.next = "ADDRESSES"
            with m.If(self._refuses()):
                m.d.sync += self.is_refused.eq(1)
                m.next = "IDLE"
        with m.State("ADDRESSES"):  # the prefix sum of the slots' flits
            sums = self._slot_sums
            m.d.comb += [
                self.memory_address.eq(self._at("entries_at") + self._place),
                sums.counts.eq(self.memory_data[16:23]),
                sums.valid.eq((self._place != 0) & (self._place <= self._field("blocks"))),
                sums.clear.eq(self._place == 1),
                self._address_in.en.eq(sums.offsets_valid),
                self._address_in.addr.eq(self._place - 2),
                self._address_in.data.eq(sums.offsets),
            ]
            m.d.sync += self._place.eq(self._place + 1)
            with m.If(self._place == self._field("blocks") + 1):
                m.d.sync += self._place.eq(0)
                m.next = "CLEAR"

    def _refuses(self) -> Value:
        sizes = self.sizes
        beyond = (
            (self._field("version") != VERSION)
            | (self._field("tile") != sizes.fabric.shape.tile)
            | (self._field("blocks") > sizes.blocks)
            | (self._field("column_tiles") > sizes.column_tiles)
            | (self._field("column_rounds") > sizes.column_tiles)
        )
        for flag in REFUSED_FLAGS:
            beyond |= self._field(flag)
        planned = self._field("policy") != 0
        return beyond | (planned & (self._field("k_tiles") > sizes.depths) if sizes.plans else planned)

    # Owners of output columns, stored or planned.
    def _find_owners(self, m: Module) -> None:
        with m.State("CLEAR"):
            m.d.comb += [self._owned_in.addr.eq(self._place), self._owned_in.en.eq(-1)]
            m.d.sync += self._place.eq(self._place + 1)
            with m.If(self._place + 1 == self._field("column_rounds")):
                m.d.sync += self._place.eq(0)
                m.next = "OWNERS"
                if self.sizes.plans:
                    with m.If(self._field("policy") != 0):
                        m.next = "PLAN"
        with m.State("OWNERS"):
            m.d.comb += self.memory_address.eq(self._at("owners_at") + self._place)
            m.d.sync += self._place.eq(self._place + 1)
            with m.If((self._place != 0) & ~self.memory_data[16:].all()):
                column, place = self.memory_data[:8], self.memory_data[8:16]
                self._own(m, self._place - 1, column, place, self.memory_data[16:])
            with m.If(self._place == self._field("column_tiles")):
                m.next = "BEGIN"
        if self.sizes.plans:
            self._plan_owners(m)
        with m.State("BEGIN"):
            m.d.sync += [
                self._column_round.eq(0),
                self._row_round.eq(0),
                self._round_base.eq(self._at("batches_at")),
                self._order_base.eq(self._at("orders_at")),
            ]
            m.next = "ROUND"

    def _own(self, m: Module, of: Value, column: Value, place: Value, number: Value) -> None:
        """Write an owner, and count it among those of its round, alike in every group of mesh columns."""
        shape, width = self.sizes.fabric.shape, bits_for(self.sizes.fabric.shape.accumulator_tiles)
        m.d.comb += [
            self._owner_in.en.eq(1),
            self._owner_in.addr.eq(of),
            self._owner_in.data.eq(Cat((column | Signal(8))[:8], (place | Signal(8))[:8], (number | Signal(16))[:16])),
            self._owned_in.addr.eq(number),
            self._owned_in.en.eq(self._repeated(column)),
            self._owned_in.data.eq(Cat(*((place + 1)[:width] for _ in range(shape.mesh_columns)))),
        ]

    def _repeated(self, column: Value) -> Value:
        """The bit of a mesh column within its group, in every group."""
        columns = self.sizes.fabric.shape.mesh_columns
        groups: Value | int = 0
        for size in range(1, columns + 1):
            if columns % size == 0:
                first = sum(1 << place for place in range(0, columns, size))
                groups = Mux(self._field("group_columns") == size, first, groups)
        return (groups << column[: bits_for(columns - 1)])[:columns]

    def _plan_owners(self, m: Module) -> None:
        planner, walker = self._planner, self._walker
        m.d.comb += [
            planner.column_tiles.eq(self._field("column_tiles")),
            planner.columns_per_round.eq(self._field("columns_per_round")),
            planner.policy.eq(self._field("policy") - 1),
            planner.block_column.eq(walker.index),
            planner.block_depth.eq(walker.line),
        ]
        with m.State("PLAN"):
            m.d.comb += planner.clear.eq(1)
            m.next = "CLEARED"
        with m.State("CLEARED"), m.If(planner.is_ready):
            m.d.comb += [walker.start.eq(1), self.memory_address.eq(walker.memory_address)]
            m.next = "COLLECT"
        with m.State("COLLECT"):
            m.d.comb += [
                self.memory_address.eq(walker.memory_address),
                walker.ready.eq(1),
                planner.block.eq(walker.valid),
            ]
            with m.If(~walker.busy):
                m.d.comb += planner.plan.eq(1)
                m.next = "SHARE"
        with m.State("SHARE"):
            with m.If(planner.owner_valid):
                self._own(m, planner.owner_of, planner.owner_column, planner.owner_place, planner.owner_round)
            with m.If(planner.is_done):
                m.next = "BEGIN"

    # A round: k_step by k_step, twice.
    def _walk_round(self, m: Module) -> None:
        with m.State("ROUND"):
            m.d.comb += self._owned_out.addr.eq(self._column_round)
            m.d.sync += [Cat(*self._owned).eq(self._owned_out.data), self._order.eq(0), self._emits.eq(0)]
            m.d.sync += [joined.eq(0) for joined in self._joined.values()]
            m.next = "ORDER"
        with m.State("ORDER"):
            m.d.comb += self.memory_address.eq(self._order_base + self._order)
            m.d.sync += [*(each.eq(0) for each in self._has_tiles), self._present.eq(0)]
            for each in (self._count, self._sums, self._edge_valid, self._edge):
                m.d.sync += [signal.eq(0) for signal in each]
            m.next = "K_TILE"
        with m.State("K_TILE"):
            m.d.sync += [
                self._k_tile.eq(self.memory_data),
                self._batch.eq(self._round_base + self.memory_data[:ORDER_BITS] * self._field("batch_stride")),
                self._row.eq(0),
                self._group.eq(0),
                self._place.eq(0),
            ]
            m.next = "SCAN"
        with m.State("SCAN"):
            self._scan(m)
        with m.State("WALK"):
            self._walk(m)
        with m.State("NEXT"):
            self._next(m)

    def _batch_words(self) -> Value:
        return ((self._field("row_tiles") + 3) >> 2) + 2

    def _to_next_part(self, m: Module) -> Value:
        """Go on to the next group of mesh columns, or to the first of the next mesh row; whether this was the last."""
        shape = self.sizes.fabric.shape
        following, is_last = Signal(range(2 * shape.mesh_columns + 1)), Signal()
        m.d.comb += [
            following.eq(self._group + self._field("group_columns")),
            is_last.eq((self._row == shape.mesh_rows - 1) & (following == shape.mesh_columns)),
        ]
        m.d.sync += self._group.eq(following)
        with m.If(following == shape.mesh_columns):
            m.d.sync += [self._group.eq(0), self._row.eq(Mux(is_last, 0, self._row + 1))]
        return is_last

    def _group_mask(self) -> Value:
        """The mesh columns of the current group."""
        columns = self.sizes.fabric.shape.mesh_columns
        return (((1 << self._field("group_columns")[: bits_for(columns)]) - 1) << self._group)[:columns]

    def _scan(self, m: Module) -> None:
        """Read the counts of every part's batch: which parts have a tile with data."""
        asks = Signal(WORD_BITS)
        m.d.comb += [asks.eq(self._batch + self._place), self.memory_address.eq(asks + 1)]
        m.d.sync += self._place.eq(self._place + self._batch_words())
        with m.If(self._place != 0):
            is_last = self._to_next_part(m)
            with m.If(self.memory_data[8:16] != 0):
                for row, has in enumerate(self._has_tiles):
                    with m.If(self._row == row):
                        m.d.sync += has.eq(has | self._group_mask())
            with m.If(is_last):
                m.d.sync += self._place.eq(0)
                m.next = "WALK"

    def _walk(self, m: Module) -> None:
        """Visit the blocks of the k_tile; those of this round are marked, and in the second pass sent."""
        walker, mine, taken = self._walker, Signal(), Signal()
        begun = Signal()
        m.d.comb += [
            self.memory_address.eq(walker.memory_address),
            walker.start.eq(~begun),
            mine.eq(walker.valid & (self._owner_round == self._column_round)),
            taken.eq(1),
            walker.ready.eq(taken),
        ]
        m.d.sync += begun.eq(1)
        with m.If(mine & ~self._emits):
            m.d.sync += self._present.eq(self._present | self._repeated(self._owner_column))
        with m.If(mine & self._emits):
            self._send_block(m, taken)
        with m.If(begun & ~walker.busy):
            m.d.sync += [begun.eq(0), self._group.eq(0)]
            m.next = "NEXT"
            with m.If(self._emits):
                m.next = "PART"
            with m.Else():
                self._mark_last(m)

    def _send_block(self, m: Module, taken: Signal) -> None:
        """One command for every group with a row that uses the block; the group is in ``_group``."""
        sizes, shape = self.sizes.fabric, self.sizes.fabric.shape
        place, users, sent, following = (
            Signal(range(2 * shape.mesh_columns)),
            Signal(shape.mesh_rows),
            Signal(),
            Signal(range(2 * shape.mesh_columns + 1)),
        )
        command = Signal(sizes.command(shape.mesh_rows, serial=False))
        entry, line = self._walker.index, Signal.like(self.line)
        m.d.comb += [
            place.eq(self._group + self._owner_column),
            users.eq(Cat(*(has.bit_select(self._group, 1) for has in self._has_tiles))),
            line.eq(place + shape.mesh_rows),
            following.eq(self._group + self._field("group_columns")),
            command.parallel.eq(1),
            command.packed.eq(entry[23]),
            command.flits.eq(entry[16:23]),
            command.address.eq(self._address_out.data),
            command.destinations.eq(users),
            self.valid.eq(users != 0),
            self.line.eq(line),
            self.word.eq(command),
            sent.eq((users == 0) | self.ready.bit_select(line, 1)),
            taken.eq(sent & (following == shape.mesh_columns)),
        ]
        with m.If(sent):
            m.d.sync += [
                self._group.eq(Mux(taken, 0, following)),
                self._count[place].eq(self._count[place] + 1),
                self._sums[place].eq(self._sums[place] | (1 << self._owner_place[: bits_for(shape.accumulator_tiles)])),
                self._present.bit_select(place, 1).eq(1),
            ]
            if not sizes.skips_both:
                with m.If(entry[:16] == self._field("column_tiles") - 1):
                    m.d.sync += [self._edge_valid[place].eq(1), self._edge[place].eq(self._count[place])]

    def _mark_last(self, m: Module) -> None:
        """Note for every cluster that has work in this k_step that none after it may have."""
        for (row, place), last in self._last.items():
            with m.If(self._has_tiles[row][place] & self._present[place]):
                m.d.sync += [last.eq(self._order), self._joined[row, place].eq(1)]

    def _next(self, m: Module) -> None:
        """The next k_step, pass, batch of row tiles, or round of columns."""
        m.d.sync += self._order.eq(self._order + 1)
        m.next = "ORDER"
        with m.If(self._order + 1 == self._field("k_tiles")):
            m.d.sync += [self._order.eq(0), self._emits.eq(1)]
            with m.If(self._emits):
                m.d.sync += [rounds.eq(rounds + self._joined[each]) for each, rounds in self._rounds.items()]
                m.d.sync += [
                    self._row_round.eq(self._row_round + 1),
                    self._round_base.eq(self._round_base + self._field("k_tiles") * self._field("batch_stride")),
                ]
                m.next = "ROUND"
                with m.If(self._row_round + 1 == self._field("row_rounds")):
                    m.d.sync += [
                        self._row_round.eq(0),
                        self._round_base.eq(self._at("batches_at")),
                        self._column_round.eq(self._column_round + 1),
                        self._order_base.eq(self._order_base + self._field("k_tiles")),
                    ]
                    with m.If(self._column_round + 1 == self._field("column_rounds")):
                        m.next = "IDLE"

    # Commands of the mesh rows, part by part.
    def _send_rows(self, m: Module) -> None:
        shape = self.sizes.fabric.shape
        self._first_flit, self._tiles, self._last_tile = Signal(WORD_BITS), Signal(8), Signal(8)
        self._tile, self._four, self._at_word = Signal(8), Signal(WORD_BITS), Signal(WORD_BITS)
        self._shift = [Signal(bits_for(shape.accumulator_tiles), name=f"shift_{n}") for n in range(shape.mesh_columns)]
        destinations = Signal(shape.mesh_columns)
        m.d.comb += destinations.eq(Array(self._has_tiles)[self._row] & self._present & self._group_mask())
        with m.State("PART"):
            m.d.comb += self.memory_address.eq(self._batch)
            m.d.sync += [self._tile.eq(0), self._at_word.eq(self._batch + 2), *(each.eq(0) for each in self._shift)]
            m.next = "COUNTS"
            with m.If(destinations == 0):
                self._leave_part(m)
        with m.State("COUNTS"):
            m.d.comb += self.memory_address.eq(self._batch + 1)
            m.d.sync += self._first_flit.eq(self.memory_data)
            m.next = "SIZES"
        with m.State("SIZES"):
            m.d.comb += self.memory_address.eq(self._at_word)
            m.d.sync += [self._tiles.eq(self.memory_data), self._last_tile.eq(self.memory_data[8:16])]
            m.next = "SUM"
        with m.State("SUM"):  # first flits of four tiles
            sums = self._tile_sums
            m.d.comb += [
                sums.valid.eq(1),
                sums.clear.eq(self._tile == 0),
                sums.counts.eq(Cat(*(self.memory_data[8 * lane : 8 * lane + 7] for lane in range(4)))),
            ]
            m.d.sync += [self._four.eq(self.memory_data), self._at_word.eq(self._at_word + 1)]
            m.next = "TILE"
        with m.State("TILE"):
            self._send_tile(m, destinations)

    def _leave_part(self, m: Module) -> None:
        m.d.sync += self._batch.eq(self._batch + self._batch_words())
        m.next = "PART"
        with m.If(self._to_next_part(m)):
            m.next = "NEXT"

    def _send_tile(self, m: Module, destinations: Signal) -> None:
        """One tile a cycle; a tile without data only moves the sums on."""
        sizes, shape = self.sizes.fabric, self.sizes.fabric.shape
        lane, size, moves, ends = self._tile[:2], Signal(8), Signal(), Signal()
        command = Signal(sizes.command(shape.mesh_columns, serial=True))
        m.d.comb += [
            self.memory_address.eq(self._at_word),
            size.eq(self._four.word_select(lane, 8)),
            ends.eq(self._tile + 1 == self._last_tile),
            command.packed.eq(size[7]),
            command.flits.eq(size[:7]),
            command.address.eq(self._first_flit + self._tile_sums.offsets.word_select(lane, WORD_BITS)),
            command.destinations.eq(destinations),
            command.headers.eq(Cat(*self._headers(m, destinations, ends))),
            self.valid.eq(size != 0),
            self.line.eq(self._row),
            self.word.eq(command),
            moves.eq((size == 0) | self.ready.bit_select(self._row, 1)),
        ]
        with m.If(moves):
            m.d.sync += self._tile.eq(self._tile + 1)
            m.d.sync += [shift.eq(shift + owned) for shift, owned in zip(self._shift, self._owned, strict=True)]
            with m.If(ends):
                self._leave_part(m)
            with m.Elif(lane == 3):
                m.next = "SUM"

    def _headers(self, m: Module, destinations: Signal, is_last: Signal) -> list[Any]:
        """The header of the current tile for every mesh column; zero where it is no destination."""
        sizes, shape = self.sizes.fabric, self.sizes.fabric.shape
        headers = []
        for place in range(shape.mesh_columns):
            closes, rounds = (
                Array([table[row, place] for row in range(shape.mesh_rows)])[self._row]
                for table in (self._last, self._rounds)
            )
            header = Signal(data.StructLayout(dict(sizes.header.members)), name=f"header_{place}")
            with m.If(destinations[place]):
                m.d.comb += [
                    header.blocks.eq((1 << self._count[place]) - 1),
                    header.sums.eq(self._sums[place] << self._shift[place]),
                    header.count.eq(self._count[place]),
                    header.edge_valid.eq(self._edge_valid[place]),
                    header.edge.eq(self._edge[place]),
                    header.round.eq(rounds),
                    header.last_of_k_step.eq(is_last),
                    header.last_of_round.eq(is_last & (closes == self._order)),
                    header.tiles.eq(self._tiles * self._owned[place]),
                ]
            headers.append(header.as_value())
        return headers
