"""The topology unit: scores of blocks from sums in memory, selection, and a layer's new index written to memory.

Everything before the first write only reads, so an update that fails leaves the old topology as it was.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.errors import RtlError
from acf.rtl.design.arithmetic.add import Fp32Adder
from acf.rtl.device.topology.descriptor import FIELDS, NO_SLOT, SCORE_FLITS
from acf.rtl.device.topology.rebuild import Rebuild
from acf.rtl.device.topology.selection import Selection
from acf.rtl.device.topology.word_writer import WORD_BITS, WordWriter
from acf.rtl.device.vector.descriptor import DESCRIPTOR_BYTES
from acf.rtl.device.vector.streams import ADDRESS_BITS


@dataclass(frozen=True)
class TopologySizes:
    """The largest layer of a topology unit, in blocks; it has ``slots`` of them and moves up to ``moves``.

    A split-K weight gradient has up to ``mesh_columns`` to accumulate its tiles, ``accumulator_tiles`` each in a round.
    """

    rows: int
    columns: int
    slots: int
    moves: int
    mesh_columns: int
    accumulator_tiles: int

    def __post_init__(self) -> None:
        for name in ("rows", "columns", "slots", "moves", "mesh_columns", "accumulator_tiles"):
            if not 1 <= getattr(self, name) < 1 << 16:
                raise RtlError(f"{name} {getattr(self, name)} of a topology unit is not in 1 to 65535; use one that is")


class TopologyUnit(Component):
    """``start`` runs the topology descriptor in ``words``; ``busy`` until its last flit was handed to the writer.

    ``failed`` is 1 in the last cycle of an update that is beyond the sizes, lacks blocks to move, or would empty a row
    or column that the descriptor needs; such an update writes nothing. ``wanted`` asks for the flit at ``address``,
    which follows ``granted`` with ``flit_valid``; ``offers`` to ``next`` are those of a `WordWriter`.
    """

    def __init__(self, sizes: TopologySizes, tile: int, flit_bits: int) -> None:
        self.sizes, self.tile, self.flit_bits = sizes, tile, flit_bits
        super().__init__(
            {
                "start": In(1),
                "words": In(8 * DESCRIPTOR_BYTES),
                "busy": Out(1),
                "failed": Out(1),
                "wanted": Out(1),
                "address": Out(ADDRESS_BITS),
                "granted": In(1),
                "flit_valid": In(1),
                "flit": In(flit_bits),
                "offers": Out(1),
                "to": Out(ADDRESS_BITS),
                "word": Out(flit_bits),
                "granted_write": In(1),
                "next": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read the table, score and select, move in the tables on chip, check, then write."""
        m = Module()
        parts = Parts(m, self)
        with m.FSM(name="update") as update:
            with m.State("IDLE"):
                m.d.comb += parts.selection.clear.eq(1)
                m.d.sync += [parts.descriptor.eq(self.words), *parts.home()]
                with m.If(self.start):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.next = "TABLE READ"
                with m.If(self._is_beyond(parts)):
                    self._fail(m)
            self._read_table(m, parts)
            self._score(m, parts)
            self._move(m, parts)
            Rebuild(self, parts).states(m)
            m.d.comb += self.busy.eq(~update.ongoing("IDLE"))
        return m

    def _fail(self, m: Module) -> None:
        m.d.comb += self.failed.eq(1)
        m.next = "IDLE"

    def _is_beyond(self, parts: "Parts") -> Value:
        sizes, beyond = self.sizes, parts.field("moves") == 0
        for name, most in (("rows", sizes.rows), ("columns", sizes.columns), ("blocks", sizes.slots)):
            beyond |= (parts.field(name) > most) | (parts.field(name) == 0)
        return beyond | (parts.field("moves") > sizes.moves) | (parts.field("group_columns") > sizes.mesh_columns)

    def _read_table(self, m: Module, parts: "Parts") -> None:
        """The slot of every block, a flit of words at a time."""
        lanes = self.flit_bits // WORD_BITS
        with m.State("TABLE READ"):
            m.d.comb += [self.wanted.eq(1), self.address.eq(parts.field("table") + parts.place)]
            with m.If(self.granted):
                m.next = "TABLE FLIT"
        with m.State("TABLE FLIT"):
            m.d.sync += parts.lane.eq(0)
            with m.If(self.flit_valid):
                m.d.sync += parts.held.eq(self.flit)
                m.next = "TABLE WORD"
        with m.State("TABLE WORD"):
            word = parts.held.word_select(parts.lane, WORD_BITS)
            parts.set_slot(m, parts.row, parts.column, word != NO_SLOT, word)
            with m.If(word != NO_SLOT):
                parts.set_block(m, word, parts.row, parts.column)
            m.d.sync += parts.lane.eq(parts.lane + 1)
            with m.If(parts.lane == lanes - 1):
                m.d.sync += parts.place.eq(parts.place + 1)
                m.next = "TABLE READ"
            with m.If(parts.to_next_block(m)):
                m.d.sync += parts.home()
                m.next = "SCORE"

    def _score(self, m: Module, parts: "Parts") -> None:
        """Weights slot by slot, then absent gradients block by block: the lanes' sums of squares, added in order."""
        lanes, absent = self.flit_bits // WORD_BITS, parts.scores_absent
        flits = SCORE_FLITS // 2
        with m.State("SCORE"):
            m.d.sync += [parts.part.eq(0), parts.total.eq(0)]
            m.next = "SUMS READ"
            with m.If(absent & parts.slot_valid):
                self._next_score(m, parts)
        with m.State("SUMS READ"):
            base = Mux(absent, parts.field("gradient_norms"), parts.field("norms"))
            m.d.comb += [
                self.wanted.eq(1),
                self.address.eq(base + parts.place * SCORE_FLITS + flits + parts.part),
            ]
            with m.If(self.granted):
                m.next = "SUMS FLIT"
        with m.State("SUMS FLIT"):
            m.d.sync += parts.lane.eq(0)
            with m.If(self.flit_valid):
                m.d.sync += parts.held.eq(self.flit)
                m.next = "SUMS ADD"
        with m.State("SUMS ADD"):
            m.d.sync += [parts.total.eq(parts.adder.total), parts.lane.eq(parts.lane + 1)]
            with m.If(parts.lane == lanes - 1):
                m.d.sync += parts.part.eq(parts.part + 1)
                m.next = "SUMS READ"
                with m.If(parts.part == flits - 1):
                    m.next = "INSERT"
        with m.State("INSERT"):
            m.d.comb += [
                parts.selection.valid.eq(1),
                parts.selection.tag.eq(Mux(absent, Cat(parts.column, parts.row), parts.place)),
            ]
            self._next_score(m, parts)

    def _next_score(self, m: Module, parts: "Parts") -> None:
        """The next slot or block; behind the last slot the slots that lose their block are noted."""
        m.next = "SCORE"
        m.d.sync += parts.place.eq(parts.place + 1)
        with m.If(parts.scores_absent), m.If(parts.to_next_block(m)):
            m.d.sync += parts.home()
            m.next = "ENOUGH"
        with m.Elif(parts.place + 1 == parts.field("blocks")):
            m.d.sync += [*parts.home(), parts.scores_absent.eq(1)]
            m.next = "DROP"

    def _move(self, m: Module, parts: "Parts") -> None:
        """Give the slots of dropped blocks to grown ones, best to worst, in the tables on chip."""
        selection, number = parts.selection, parts.place[: bits_for(self.sizes.moves)]
        slot, grown = Array(parts.dropped)[number], Array(selection.tags)[number]
        bits = len(parts.column)
        with m.State("DROP"):
            m.d.sync += [each.eq(selection.tags[place]) for place, each in enumerate(parts.dropped)]
            m.d.comb += selection.clear.eq(1)
            m.next = "SCORE"
            with m.If(selection.held < parts.field("moves")):
                self._fail(m)
        with m.State("ENOUGH"):
            m.next = "TAKE"
            with m.If(selection.held < parts.field("moves")):
                self._fail(m)
        m.d.comb += parts.block_out.addr.eq(slot)
        with m.State("TAKE"):
            parts.set_slot(m, parts.block_row, parts.block_column, Const(0, 1), Const(0, 1))
            m.next = "GIVE"
        with m.State("GIVE"):
            parts.set_slot(m, grown[bits:], grown[:bits], Const(1, 1), slot)
            parts.set_block(m, slot, grown[bits:], grown[:bits])
            m.d.sync += parts.place.eq(parts.place + 1)
            m.next = "TAKE"
            with m.If(parts.place + 1 == parts.field("moves")):
                m.d.sync += parts.home()
                m.next = "VERIFY"


class Parts:
    """Registers, tables and units of a `TopologyUnit`."""

    def __init__(self, m: Module, unit: TopologyUnit) -> None:
        sizes, lanes = unit.sizes, unit.flit_bits // WORD_BITS
        self.row, self.column = Signal(range(max(2, sizes.rows))), Signal(range(max(2, sizes.columns)))
        tag_bits = max(len(self.row) + len(self.column), bits_for(sizes.slots - 1))
        self.descriptor = Signal(8 * DESCRIPTOR_BYTES)
        self.place = Signal(ADDRESS_BITS)  # counts through whatever a state reads
        self.lane, self.part = Signal(range(max(2, lanes))), Signal(8)
        self.held, self.total = Signal(unit.flit_bits), Signal(WORD_BITS)
        self.scores_absent = Signal()
        self.dropped = [Signal(bits_for(sizes.slots - 1), name=f"dropped_{number}") for number in range(sizes.moves)]
        m.submodules.adder = self.adder = Fp32Adder()
        m.submodules.selection = self.selection = Selection(sizes.moves, tag_bits)
        m.submodules.writer = self.writer = WordWriter(unit.flit_bits)
        self._make_tables(m, unit)
        m.d.comb += [
            self.adder.x.eq(self.total),
            self.adder.y.eq(self.held.word_select(self.lane, WORD_BITS)),
            self.selection.score.eq(self.total),
            self.selection.least.eq(~self.scores_absent),
            unit.offers.eq(self.writer.offers),
            unit.to.eq(self.writer.to),
            unit.word.eq(self.writer.flit),
            self.writer.granted.eq(unit.granted_write),
            self.writer.next.eq(unit.next),
        ]

    def _make_tables(self, m: Module, unit: TopologyUnit) -> None:
        """The slot of every block, and the block of every slot."""
        slot_bits, place_bits = bits_for(unit.sizes.slots - 1), len(self.row) + len(self.column)
        m.submodules.slots = slots = Memory(shape=1 + slot_bits, depth=1 << place_bits, init=[])
        m.submodules.blocks = blocks = Memory(shape=place_bits, depth=max(2, unit.sizes.slots), init=[])
        self.slot_in, slot_out = slots.write_port(), slots.read_port(domain="comb")
        self.block_in, self.block_out = blocks.write_port(), blocks.read_port(domain="comb")
        m.d.comb += slot_out.addr.eq(Cat(self.column, self.row))
        self.slot_valid, self.slot = slot_out.data[0], slot_out.data[1:]
        self.block_column, self.block_row = (
            self.block_out.data[: len(self.column)],
            self.block_out.data[len(self.column) :],
        )

    def field(self, name: str) -> Value:
        """A field of the descriptor that runs."""
        word, low, bits, _ = FIELDS[name]
        return self.descriptor[32 * word + low : 32 * word + low + bits]

    def home(self) -> list[Any]:
        """Go back to the first block and the first place."""
        return [self.row.eq(0), self.column.eq(0), self.place.eq(0), self.scores_absent.eq(0)]

    def to_next_block(self, m: Module, by_columns: Value | None = None) -> Signal:
        """Go on along a row, or ``by_columns`` down a column; whether this was the last block."""
        swaps = Const(0, 1) if by_columns is None else by_columns
        ends_row, ends_column, is_last = Signal(), Signal(), Signal()
        m.d.comb += [
            ends_row.eq(self.column == self.field("columns") - 1),
            ends_column.eq(self.row == self.field("rows") - 1),
            is_last.eq(ends_row & ends_column),
        ]
        with m.If(swaps | ends_row):
            m.d.sync += self.row.eq(Mux(ends_column, 0, self.row + 1))
        with m.If(~swaps | ends_column):
            m.d.sync += self.column.eq(Mux(ends_row, 0, self.column + 1))
        return is_last

    def set_slot(self, m: Module, row: Value, column: Value, valid: Value, slot: Value) -> None:
        """Write the slot of a block, or that it has none."""
        port, place = self.slot_in, Cat((column | Const(0, len(self.column)))[: len(self.column)], row)
        m.d.comb += [port.en.eq(1), port.addr.eq(place), port.data.eq(Cat(valid, slot))]

    def set_block(self, m: Module, slot: Value, row: Value, column: Value) -> None:
        """Write the block of a slot."""
        m.d.comb += [self.block_in.en.eq(1), self.block_in.addr.eq(slot), self.block_in.data.eq(Cat(column, row))]
