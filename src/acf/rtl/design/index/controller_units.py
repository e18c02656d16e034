"""Ports, registers and units of the index-walking controller: stream of blocks, prefix sum, tables, owner planner."""

from dataclasses import dataclass

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Member, Out
from amaranth.utils import bits_for

from acf.errors import RtlError
from acf.lowering.descriptor import DESCRIPTOR_WORDS, FIELDS
from acf.lowering.product_index import row_bit_words
from acf.rtl.design.fabric.sizes import ROUND_BITS, FabricSizes
from acf.rtl.design.index.block_stream import WORD_BITS, BlockStream
from acf.rtl.design.index.owner_planner import OwnerPlanner
from acf.rtl.design.index.prefix_sum import PrefixSum

ORDER_BITS = 16


@dataclass(frozen=True)
class IndexSizes:
    """The largest product of a controller: ``blocks`` of it, ``column_tiles`` output columns, ``depths`` k_tiles.

    ``depths`` limits only what the controller plans itself; with stored owners a descriptor's 16 bits do. A split-K
    product may have any number of blocks, but no more than ``column_tiles`` tiles of output rows either. ``sharing``:
    controllers that walk a product side by side; each makes the commands of its own lines (`share_of`).
    """

    fabric: FabricSizes
    blocks: int = 4096
    column_tiles: int = 256
    depths: int = 64
    sharing: int = 1

    def __post_init__(self) -> None:
        lines = min(self.fabric.shape.mesh_rows, self.fabric.shape.mesh_columns)
        if not 1 <= self.sharing <= lines:
            raise RtlError(
                f"sharing {self.sharing} of a product's controllers is not in 1 to {lines}, the lesser of mesh rows "
                "and mesh columns; use one that is"
            )
        for name in ("blocks", "column_tiles", "depths"):
            if getattr(self, name) < 2:
                raise RtlError(f"{name} {getattr(self, name)} of an index controller is less than 2; give more")

    def share_of(self, line: int) -> int:
        """The controller that makes the commands of a line: mesh rows and mesh columns are dealt out round-robin."""
        rows = self.fabric.shape.mesh_rows
        return (line if line < rows else line - rows) % self.sharing

    @property
    def plans(self) -> bool:
        """Whether the controller can share output columns itself: there must be mesh columns to choose from."""
        return self.fabric.shape.mesh_columns > 1

    @property
    def command_bits(self) -> int:
        """Bits of the wider kind of command."""
        shape = self.fabric.shape
        row, column = (shape.mesh_columns, True), (shape.mesh_rows, False)
        return max(int(self.fabric.command(*each).size) for each in (row, column))


def walking_ports(sizes: IndexSizes) -> dict[str, Member]:
    """Ports of what walks an index: the memory that it reads, and the commands that it offers to lines."""
    shape = sizes.fabric.shape
    lines = shape.mesh_rows + shape.mesh_columns
    return {
        "start": In(1),
        "memory_address": Out(WORD_BITS),
        "memory_data": In(WORD_BITS),
        "ready": In(lines),
        "valid": Out(1),
        "line": Out(bits_for(lines - 1)),
        "word": Out(sizes.command_bits),
        "is_gap": Out(1),
    }


def meeting_ports(sizes: IndexSizes) -> dict[str, Member]:
    """Ports between controllers that share a product: by mesh row and mesh column, clusters that have joined a round.

    ``joined`` are those that a controller knows; in a cycle of ``all_wait``, when every one of them ``waits``, it takes
    over ``others_joined``.
    """
    clusters = sizes.fabric.shape.mesh_rows * sizes.fabric.shape.mesh_columns
    return {"joined": Out(clusters), "others_joined": In(clusters), "waits": Out(1), "all_wait": In(1)}


class ControllerUnits(Component):
    """Ports, registers and units of an `IndexController`, and what several of its states compute.

    ``number``: which of the controllers that share a product it is.
    """

    def __init__(self, sizes: IndexSizes, number: int = 0) -> None:
        self.sizes, self.number = sizes, number
        super().__init__(walking_ports(sizes) | meeting_ports(sizes) | {"busy": Out(1), "is_refused": Out(1)})

    def _make_state(self, m: Module) -> None:
        shape = self.sizes.fabric.shape
        self._words = [Signal(WORD_BITS, name=f"descriptor_{number}") for number in range(DESCRIPTOR_WORDS)]
        self._split_k_start = Signal()
        self._place = Signal(WORD_BITS)  # counts through whatever a state reads
        self._column_round, self._row_round = Signal(ORDER_BITS), Signal(ORDER_BITS)
        self._order, self._k_tile, self._steps = Signal(ORDER_BITS), Signal(ORDER_BITS), Signal(ORDER_BITS)
        self._order_base, self._round_base = Signal(WORD_BITS), Signal(WORD_BITS)
        self._emits = Signal()  # the second pass
        self._batch = Signal(WORD_BITS)
        self._row, self._group = Signal(range(max(2, shape.mesh_rows))), Signal(range(max(2, shape.mesh_columns)))
        columns = range(shape.mesh_columns)
        tiles = shape.accumulator_tiles
        self._owned = [Signal(bits_for(tiles), name=f"owned_{place}") for place in columns]
        clusters = [(row, place) for row in range(shape.mesh_rows) for place in columns]
        self._row_words = Signal(WORD_BITS)  # of the batches of a mesh row
        # A bit for every tile of a cluster's bank, row tile by row tile: those that the product keeps, and those of
        # them whose serial tile has data in this k_step. Only clusters that this controller sends something to count.
        reached = [each for each in clusters if each[0] in self._own_rows or each[1] in self._own_columns]
        self._kept, self._live = (
            {each: Signal(tiles, name=f"{name}_{each[0]}_{each[1]}") for each in reached} for name in ("kept", "live")
        )
        # The rest of clusters whose serial tiles this controller sends: of their tiles with data those that a block of
        # this k_step adds to, and by place in the bank the output columns whose block they store in it.
        clusters = [each for each in clusters if each[0] in self._own_rows]
        self._work, self._stored = (
            {each: Signal(tiles, name=f"{name}_{each[0]}_{each[1]}") for each in clusters}
            for name in ("work", "stored")
        )
        self._last = {each: Signal(ORDER_BITS, name=f"last_{each[0]}_{each[1]}") for each in clusters}
        self._joined = {each: Signal(name=f"joined_{each[0]}_{each[1]}") for each in clusters}
        self._rounds = {each: Signal(ROUND_BITS, name=f"rounds_{each[0]}_{each[1]}") for each in clusters}
        self._edge_valid = {each: Signal(name=f"edge_valid_{each[0]}_{each[1]}") for each in clusters}

    @property
    def _own_rows(self) -> range:
        """The mesh rows whose commands this controller makes."""
        return range(self.number, self.sizes.fabric.shape.mesh_rows, self.sizes.sharing)

    def _of_row(self, table: dict[tuple[int, int], Signal], place: int) -> Value:
        """The entry of a mesh column in the current mesh row, which is one of this controller's."""
        if len(self._own_rows) == 1:
            return table[self.number, place]
        rows, absent = range(self.sizes.fabric.shape.mesh_rows), Const(0, len(table[self.number, place]))
        return Array([table.get((row, place), absent) for row in rows])[self._row]

    def _field(self, name: str) -> Value:
        """A field of the descriptor."""
        at = FIELDS[name]
        return self._words[at.word][at.low : at.low + at.bits]

    def _at(self, name: str) -> Value:
        """The address of a part of the index."""
        return self._field(name) + DESCRIPTOR_WORDS

    def _make_units(self, m: Module) -> None:
        sizes, shape = self.sizes, self.sizes.fabric.shape
        m.submodules.blocks = self._blocks = blocks = BlockStream()
        m.submodules.slot_sums = self._slot_sums = PrefixSum(1, 7, WORD_BITS)
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
        m.d.comb += [
            blocks.memory_data.eq(self.memory_data),
            blocks.direct.eq(self._field("direct")),
            blocks.slots_base.eq(self._at("slots_at")),
            blocks.entries_base.eq(self._at("entries_at")),
            blocks.lines.eq(Mux(plans, self._field("k_tiles"), 1)),
            blocks.offsets_base.eq(Mux(plans, 0, self._k_tile) + DESCRIPTOR_WORDS),
            self._owner_out.addr.eq(blocks.entry[:16]),
            self._address_out.addr.eq(blocks.slot),
        ]

    @property
    def _own_columns(self) -> range:
        """The mesh columns whose commands this controller makes."""
        return range(self.number, self.sizes.fabric.shape.mesh_columns, self.sizes.sharing)

    def _of_groups(self, value: Value | int) -> Value:
        """So much for every group of mesh columns."""
        columns = self.sizes.fabric.shape.mesh_columns
        total: Value = Const(0)
        for size in range(1, columns + 1):
            if columns % size == 0:
                total = Mux(self._field("group_columns") == size, value * (columns // size), total)
        return total

    def _live_words(self) -> Value:
        """Words before the batches of a k_tile: mesh rows with data."""
        return self._of_groups(row_bit_words(self.sizes.fabric.shape.mesh_rows))

    def _batch_words(self) -> Value:
        return ((self._field("row_tiles") + 3) >> 2) + 2

    def _to_next_part(self, m: Module, rows: range, groups_alone: Value | int = 0) -> Value:
        """Go on to the next group of mesh columns, or to the first of the next of ``rows``; whether this was the last.

        ``groups_alone``: there is one row.
        """
        columns = self.sizes.fabric.shape.mesh_columns
        following, is_last = Signal(range(2 * columns + 1)), Signal()
        m.d.comb += [
            following.eq(self._group + self._field("group_columns")),
            is_last.eq(((self._row == rows[-1]) | groups_alone) & (following == columns)),
        ]
        m.d.sync += self._group.eq(following)
        with m.If(following == columns):
            m.d.sync += [self._group.eq(0), self._row.eq(Mux(is_last, rows[0], self._row + rows.step))]
        return is_last

    def _group_mask(self) -> Value:
        """The mesh columns of the current group."""
        columns = self.sizes.fabric.shape.mesh_columns
        return (((1 << self._field("group_columns")[: bits_for(columns)]) - 1) << self._group)[:columns]
