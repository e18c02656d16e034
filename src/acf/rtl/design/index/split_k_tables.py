"""What a controller keeps of a round of a split-K product: its output tiles by row and by column, and its clusters.

A table has a word for four tiles. By row tile it has for every mesh column the numbers of the output columns that its
cluster accumulates in that row; by output column the number that the cluster has given it. Both are alike in every
group of mesh columns. A cluster with a k_tile in the round has joined it; the last one closes its bank.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.lowering.descriptor import DESCRIPTOR_WORDS, FIELDS
from acf.rtl.design.fabric.sizes import ROUND_BITS
from acf.rtl.design.index.block_stream import WORD_BITS
from acf.rtl.design.index.controller_units import ORDER_BITS, IndexSizes, meeting_ports, walking_ports
from acf.rtl.design.primitives.bits import all_of, any_of

LANES = 4
"""Tiles of a word, in tables and among sizes."""


class SplitKTables(Component):
    """Ports, registers and tables of a `SplitKController`, and the states that load a round's output tiles."""

    def __init__(self, sizes: IndexSizes, number: int = 0) -> None:
        self.sizes, self.number = sizes, number
        descriptor = data.ArrayLayout(WORD_BITS, DESCRIPTOR_WORDS)
        super().__init__(walking_ports(sizes) | meeting_ports(sizes) | {"descriptor": In(descriptor), "ends": Out(1)})

    def _field(self, name: str) -> Value:
        """A field of the descriptor."""
        at = FIELDS[name]
        word: Value = self.descriptor[at.word]
        return word[at.low : at.low + at.bits]

    def _at(self, name: str) -> Value:
        """The address of a part of the index."""
        return self._field(name) + DESCRIPTOR_WORDS

    @property
    def _column_words(self) -> Value:
        return (self._field("column_tiles") + LANES - 1) >> 2

    @property
    def _row_words(self) -> Value:
        tiles = LANES * self.sizes.fabric.shape.tile
        return ((self._field("rows") + tiles - 1) >> tiles.bit_length() - 1)[:ORDER_BITS]

    @property
    def _own_rows(self) -> range:
        return range(self.number, self.sizes.fabric.shape.mesh_rows, self.sizes.sharing)

    def _make_state(self) -> None:
        shape = self.sizes.fabric.shape
        tiles, columns = shape.accumulator_tiles, range(shape.mesh_columns)
        self._round, self._place = Signal(ORDER_BITS), Signal(WORD_BITS)
        self._first, self._outputs, self._where = Signal(WORD_BITS), Signal(ORDER_BITS), Signal(WORD_BITS)
        self._row, self._group = Signal(range(max(2, shape.mesh_rows))), Signal(range(max(2, shape.mesh_columns)))
        self._last_part = Signal(ORDER_BITS)  # mesh row and group of the last k_tile
        self._left = Signal(ORDER_BITS + 1)  # k_tiles that are not yet looked at from behind
        self._owned = [Signal(bits_for(tiles), name=f"owned_{place}") for place in columns]
        self._rounds = [Signal(ROUND_BITS, name=f"rounds_{place}") for place in columns]
        clusters = [(row, place) for row in range(shape.mesh_rows) for place in columns]
        self._joined = {each: Signal(name=f"joined_{each[0]}_{each[1]}") for each in clusters}
        self._last = {
            each: Signal(ORDER_BITS, name=f"last_{each[0]}_{each[1]}") for each in clusters if each[0] in self._own_rows
        }

    def _make_tables(self, m: Module) -> None:
        shape = self.sizes.fabric.shape
        tiles, number = shape.accumulator_tiles, bits_for(max(1, shape.accumulator_tiles - 1))
        depth = max(2, -(-self.sizes.column_tiles // LANES))
        row = data.ArrayLayout(data.ArrayLayout(tiles, shape.mesh_columns), LANES)
        column = data.ArrayLayout(
            data.ArrayLayout(data.StructLayout({"valid": 1, "number": number}), shape.mesh_columns), LANES
        )
        m.submodules.rows = rows = Memory(shape=row.size, depth=depth, init=[])
        m.submodules.columns = columns = Memory(shape=column.size, depth=depth, init=[])
        self._row_in, self._row_out = rows.write_port(granularity=tiles), rows.read_port(domain="comb")
        self._column_in, self._column_out = columns.write_port(granularity=1 + number), columns.read_port(domain="comb")
        self._table_word = Signal(range(depth))
        self._of_row, self._of_column = row(self._row_out.data), column(self._column_out.data)
        m.d.comb += [self._row_out.addr.eq(self._table_word), self._column_out.addr.eq(self._table_word)]

    def _group_bits(self) -> Value:
        """The mesh columns of the current group."""
        columns = self.sizes.fabric.shape.mesh_columns
        return (((1 << self._field("group_columns")[: bits_for(columns)]) - 1) << self._group)[:columns]

    def _by_groups(self, values: dict[int, Value]) -> Value:
        """That of ``values``, by mesh columns of a group, which the product has."""
        chosen: Value = Const(0)
        for size, value in values.items():
            chosen = Mux(self._field("group_columns") == size, value, chosen)
        return chosen

    @property
    def _group_sizes(self) -> list[int]:
        columns = self.sizes.fabric.shape.mesh_columns
        return [size for size in range(1, columns + 1) if columns % size == 0]

    def _repeated(self, column: Value) -> Value:
        """The bit of a mesh column within its group, in every group."""
        columns = self.sizes.fabric.shape.mesh_columns
        firsts = {size: Const(sum(1 << place for place in range(0, columns, size))) for size in self._group_sizes}
        return (self._by_groups(firsts) << column[: bits_for(columns - 1)])[:columns]

    def _has_joined(self, row: int, place: int) -> Value:
        """Whether a cluster has joined the round, or has no output tile in it."""
        return self._joined[row, place] | (self._owned[place] == 0)

    def _part_has_joined(self) -> Value:
        """The same of all clusters of the current mesh row and group; rows of other controllers need no look."""
        columns = range(self.sizes.fabric.shape.mesh_columns)
        rows = [
            Cat(*(self._has_joined(row, place) for place in columns))
            if row in self._own_rows
            else Const(-1, len(columns))
            for row in range(self._rows)
        ]
        return (Array(rows)[self._row] | ~self._group_bits()).all()

    @property
    def _rows(self) -> int:
        return self.sizes.fabric.shape.mesh_rows

    def _all_have_joined(self) -> Value:
        """The same of all clusters of this controller's mesh rows."""
        return all_of([self._has_joined(*each) for each in self._last])

    def _column_joined(self, place: int) -> Value:
        """Whether a cluster of a mesh column has joined the round."""
        return any_of([self._joined[row, place] for row in range(self._rows)])

    # The states that load a round.
    def _load_round(self, m: Module) -> None:
        """BEGIN and LAST_PART once; ROUND, FIRST, END, CLEAR and LOAD for every round, then FIND."""
        with m.State("BEGIN"):
            m.d.comb += self.memory_address.eq(self._at("orders_at") + self._field("column_rounds") + 1)
            m.d.sync += [self._round.eq(0), *(each.eq(0) for each in self._rounds)]
            m.next = "LAST_PART"
        with m.State("LAST_PART"):
            m.d.sync += self._last_part.eq(self.memory_data)
            m.next = "ROUND"
        with m.State("ROUND"):
            m.d.comb += self.memory_address.eq(self._at("orders_at") + self._round)
            m.d.sync += [each.eq(0) for each in (*self._owned, *self._joined.values())]
            m.next = "FIRST"
        with m.State("FIRST"):
            m.d.comb += self.memory_address.eq(self._at("orders_at") + self._round + 1)
            m.d.sync += self._first.eq(self.memory_data)
            m.next = "END"
        with m.State("END"):
            m.d.sync += [self._outputs.eq(self.memory_data - self._first), self._place.eq(0)]
            m.next = "CLEAR"
        with m.State("CLEAR"):
            m.d.comb += [
                self._row_in.addr.eq(self._place),
                self._row_in.en.eq(-1),
                self._column_in.addr.eq(self._place),
                self._column_in.en.eq(-1),
            ]
            m.d.sync += self._place.eq(self._place + 1)
            words = Mux(self._row_words > self._column_words, self._row_words, self._column_words)
            with m.If(self._place + 1 == words):
                m.d.sync += self._place.eq(0)
                m.next = "LOAD"
        with m.State("LOAD"):
            self._load_outputs(m)

    def _load_outputs(self, m: Module) -> None:
        """Two words for an output tile: where it lies, then who accumulates it."""
        first = self._at("owners_at") + (self._first << 1)
        m.d.comb += self.memory_address.eq(first + self._place)
        m.d.sync += self._place.eq(self._place + 1)
        with m.If(self._place[0]):
            m.d.sync += self._where.eq(self.memory_data)
        with m.Elif(self._place != 0):
            self._own(m)
        with m.If(self._place == self._outputs << 1):
            m.d.sync += [self._left.eq(self._field("k_tiles")), self._row.eq(self._last_part[:8])]
            m.d.sync += self._group.eq(self._last_part[8:])
            m.next = "FIND"

    def _own(self, m: Module) -> None:
        """Enter an output tile: by row the number of its column, by column likewise, and count it."""
        tiles, columns = self.sizes.fabric.shape.accumulator_tiles, self.sizes.fabric.shape.mesh_columns
        row, column = self._where[:16], self._where[16:]
        number = self.memory_data[8:16][: bits_for(max(1, tiles - 1))]
        places = self._repeated(self.memory_data[:8])
        entry = Cat(Const(1, 1), number)
        m.d.comb += [
            self._row_out.addr.eq(row[2:]),
            self._row_in.addr.eq(row[2:]),
            self._row_in.data.eq(self._row_out.data | Cat(*[(1 << number)[:tiles]] * (LANES * columns))),
            self._row_in.en.eq(Cat(*(Mux(row[:2] == lane, places, 0) for lane in range(LANES)))),
            self._column_in.addr.eq(column[2:]),
            self._column_in.data.eq(Cat(*[entry] * (LANES * columns))),
            self._column_in.en.eq(Cat(*(Mux(column[:2] == lane, places, 0) for lane in range(LANES)))),
        ]
        for place, owned in enumerate(self._owned):
            with m.If(places[place]):
                m.d.sync += owned.eq(owned + 1)
