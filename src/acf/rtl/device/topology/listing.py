"""The part of a topology unit that writes the output tiles of a split-K weight gradient: who accumulates which block.

Present blocks are dealt out, row by row, to the mesh columns of a group in turn, as lowering shares tiles of equal
work. So a round has the next ``group_columns`` x ``accumulator_tiles`` of them, and rounds begin at the same places of
the list whatever the topology. Within a round a cluster numbers the output columns that it has in order of columns, not
of rows. Therefore every round is passed twice, and the columns once in between: mark, number, write.
"""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.utils import bits_for


class Listing:
    """States from LIST CLEAR to the last word of the list, behind which ``following`` comes.

    A memory has, by column of blocks, a mark for every mesh column (one of its tiles of the round lies there), and the
    number of that column in its cluster. Numbers are written once all marks are there, which they replace.
    """

    def __init__(self, m: Module, unit: Any, parts: Any, count: Signal) -> None:
        sizes, self.parts, self.count = unit.sizes, parts, count
        self.tiles, mesh_columns = sizes.accumulator_tiles, sizes.mesh_columns
        self.number_bits = bits_for(max(1, self.tiles - 1))
        self.first_row, self.first_column = Signal.like(parts.row), Signal.like(parts.column)
        self.owner, self.bank = Signal(range(max(2, mesh_columns))), Signal(range(max(2, self.tiles)))
        self.next_numbers = [Signal(self.number_bits, name=f"next_number_{place}") for place in range(mesh_columns)]
        depth = 1 << len(parts.column)
        width = mesh_columns * (1 + self.number_bits)
        m.submodules.list_columns = columns = Memory(shape=width, depth=depth, init=[])
        self.write, read = columns.write_port(), columns.read_port(domain="comb")
        self.marked, self.numbered = read.data[:mesh_columns], read.data[mesh_columns:]
        m.d.comb += [self.write.addr.eq(parts.column), read.addr.eq(parts.column)]

    def states(self, m: Module, following: str) -> None:
        """Clear once; then by round: keep its first block, mark, number, write."""
        parts = self.parts
        with m.State("LIST CLEAR"):  # a reset may have left marks of an update that it has ended
            m.d.comb += self.write.en.eq(1)
            with m.If(self._to_next_column(m)):
                m.next = "LIST ROUND"
        with m.State("LIST ROUND"):
            m.d.sync += [self.first_row.eq(parts.row), self.first_column.eq(parts.column)]
            m.d.sync += [self.owner.eq(0), self.bank.eq(0), *(each.eq(0) for each in self.next_numbers)]
            m.next = "LIST MARK"
        self._mark(m)
        self._number(m)
        self._write(m, following)

    def _to_next_column(self, m: Module) -> Value:
        """Go on to the next column of blocks, behind the last to the first; whether this was the last."""
        parts, is_last = self.parts, Signal()
        m.d.comb += is_last.eq(parts.column == parts.field("columns") - 1)
        m.d.sync += parts.column.eq(Mux(is_last, 0, parts.column + 1))
        return is_last

    def _to_next_owner(self, m: Module) -> Value:
        """Deal the next block to the next mesh column; whether that is the first of the group again."""
        wraps = Signal()
        m.d.comb += wraps.eq(self.owner == self.parts.field("group_columns") - 1)
        m.d.sync += self.owner.eq(Mux(wraps, 0, self.owner + 1))
        return wraps

    def _mark(self, m: Module) -> None:
        """Mark the columns of the round's blocks, up to its last one, or the last of all."""
        parts = self.parts
        with m.State("LIST MARK"):
            m.d.comb += [self.write.data.eq(self.marked | (1 << self.owner)), self.write.en.eq(parts.slot_valid)]
            parts.to_next_block(m)
            with m.If(parts.slot_valid):
                m.d.sync += self.count.eq(self.count + 1)
                with m.If(self._to_next_owner(m)):
                    m.d.sync += self.bank.eq(self.bank + 1)
                is_full = (self.owner == parts.field("group_columns") - 1) & (self.bank == self.tiles - 1)
                with m.If(is_full | (self.count + 1 == parts.field("blocks"))):
                    m.d.sync += parts.column.eq(0)
                    m.next = "LIST NUMBER"

    def _number(self, m: Module) -> None:
        """Number the columns of every mesh column in order, and take the marks away."""
        parts = self.parts
        with m.State("LIST NUMBER"):
            no_marks = Const(0, len(self.marked))
            m.d.comb += [self.write.data.eq(Cat(no_marks, *self.next_numbers)), self.write.en.eq(1)]
            for place, following in enumerate(self.next_numbers):
                m.d.sync += following.eq(following + self.marked[place])
            with m.If(self._to_next_column(m)):
                m.d.sync += [parts.row.eq(self.first_row), parts.column.eq(self.first_column), self.owner.eq(0)]
                m.next = "LIST TILE"

    def _write(self, m: Module, following: str) -> None:
        """Two words of every block of the round: row and column, then mesh column and number of the column there."""
        parts = self.parts
        row, column, owner = (
            Signal(width, name=name) for width, name in ((16, "row_of"), (16, "column_of"), (8, "to"))
        )
        number = Array(self.numbered.word_select(place, self.number_bits) for place in range(len(self.next_numbers)))
        m.d.comb += [row.eq(parts.row), column.eq(parts.column), owner.eq(self.owner)]
        with m.State("LIST TILE"):
            m.d.comb += [parts.writer.valid.eq(parts.slot_valid), parts.writer.word.eq(Cat(row, column))]
            with m.If(~parts.slot_valid):
                parts.to_next_block(m)
            with m.Elif(parts.writer.ready):
                m.next = "LIST OWNER"
        with m.State("LIST OWNER"):
            m.d.comb += [parts.writer.valid.eq(1), parts.writer.word.eq(Cat(owner, number[self.owner]))]
            with m.If(parts.writer.ready):
                parts.to_next_block(m)
                self._to_next_owner(m)
                m.d.sync += parts.place.eq(parts.place + 1)
                m.next = "LIST TILE"
                with m.If(parts.place + 1 == self.count):
                    m.next = "LIST ROUND"
                    with m.If(self.count == parts.field("blocks")):
                        m.next = following
