"""The sizes of a k_tile of a split-K product: which blocks every cluster stores, and the last serial tile it meets."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from acf.rtl.design.index.block_stream import WORD_BITS
from acf.rtl.design.index.controller_units import ORDER_BITS
from acf.rtl.design.index.split_k_tables import LANES, SplitKTables
from acf.rtl.design.primitives.bits import any_of, masked


class SplitKScan(SplitKTables):
    """The states FIND, SCAN, NOTE and MEET_OTHERS: from the last k_tile on until that of every cluster is known.

    Controllers that share a product look for the clusters of their own mesh rows, then tell each other who has joined.

    SCAN reads the sizes of columns, then those of rows, four a cycle; the states that make packets use it as well.
    """

    def _make_state(self) -> None:
        super()._make_state()
        shape = self.sizes.fabric.shape
        tiles, columns = shape.accumulator_tiles, range(shape.mesh_columns)
        self._k_tile, self._batch = Signal(ORDER_BITS), Signal(WORD_BITS)
        self._makes = Signal()  # packets are made
        self._of_rows = Signal()  # the words of columns have been read
        self._serial_first, self._block_first = Signal(WORD_BITS), Signal(WORD_BITS)
        # By mesh column: numbers of output columns that have a block, those that a serial tile meets, the last of these
        self._present, self._stored = (
            [Signal(tiles, name=f"{name}_{place}") for place in columns] for name in ("present", "stored")
        )
        rows = max(2 * LANES, self.sizes.column_tiles)
        self._last_met = [Signal(range(rows), name=f"last_met_{place}") for place in columns]

    def _size(self, lane: int) -> Value:
        return self.memory_data[8 * lane : 8 * lane + 8]

    def _begin_scan(self, m: Module, k_tile: Value, first_word: int) -> None:
        """Read the words of a k_tile from ``first_word`` on; 0 and 1 are its first serial flit and its first block."""
        m.d.sync += [
            self._batch.eq(self._at("batches_at") + k_tile[:ORDER_BITS] * self._field("batch_stride")[:ORDER_BITS]),
            self._place.eq(first_word),
            self._of_rows.eq(0),
            self._table_word.eq(0),
            *(each.eq(0) for each in (*self._present, *self._stored)),
        ]
        m.next = "SCAN"

    def _find_last(self, m: Module) -> None:
        left = self._left
        with m.State("FIND"):
            m.d.sync += [self._k_tile.eq(left - 1), self._makes.eq(0)]
            with m.If(self._all_have_joined() | (left == 0)):
                m.d.sync += self._place.eq(self.number)
                m.next = "SUMS" if self.sizes.sharing == 1 else "MEET_OTHERS"
            with m.Elif(self._part_has_joined()):
                self._step_back(m)
            with m.Else():
                self._begin_scan(m, (left - 1)[:ORDER_BITS], 2)
        with m.State("SCAN"):
            self._scan(m)
        with m.State("NOTE"):
            for (row, place), last in self._last.items():
                joined = self._joined[row, place]
                found = (self._row == row) & self._group_bits()[place] & self._stored[place].any() & ~joined
                with m.If(found):
                    m.d.sync += [joined.eq(1), last.eq(self._k_tile)]
            self._step_back(m)
            m.next = "FIND"

    def _meet_others(self, m: Module) -> None:
        """Wait until all controllers of the product know their clusters, then take over what the others have found."""
        m.d.comb += self.joined.eq(Cat(*self._joined.values()))
        if self.sizes.sharing == 1:
            return
        with m.State("MEET_OTHERS"):
            m.d.comb += self.waits.eq(1)
            with m.If(self.all_wait):
                m.d.sync += Cat(*self._joined.values()).eq(self.joined | self.others_joined)
                m.next = "SUMS"

    def _step_back(self, m: Module) -> None:
        """The k_tile before: the mesh row before, or the last one of the group before."""
        shape = self.sizes.fabric.shape
        m.d.sync += [self._left.eq(self._left - 1), self._row.eq(self._row - 1)]
        with m.If(self._row == 0):
            before = self._group - self._field("group_columns")
            last = shape.mesh_columns - self._field("group_columns")
            m.d.sync += [self._row.eq(shape.mesh_rows - 1), self._group.eq(Mux(self._group == 0, last, before))]

    def _scan(self, m: Module) -> None:
        word, starts = self._place - 1, self._place == Mux(self._makes, 0, 2)
        m.d.comb += self.memory_address.eq(self._batch + self._place)
        m.d.sync += self._place.eq(self._place + 1)
        with m.If(self._place == 1):
            m.d.sync += self._serial_first.eq(self.memory_data)
        with m.If(self._place == 2):
            m.d.sync += self._block_first.eq(self.memory_data)
        with m.If(~starts & (word[:ORDER_BITS] >= 2)):
            m.d.sync += self._table_word.eq(self._table_word + 1)
            with m.If(self._of_rows):
                self._meet_rows(m)
            with m.Else():
                self._find_blocks(m)
                with m.If(self._table_word + 1 == self._column_words):
                    m.d.sync += [self._of_rows.eq(1), self._table_word.eq(0)]
        with m.If(self._place == self._field("batch_stride")):
            m.next = "NOTE"
            with m.If(self._makes):
                m.next = "MEET"

    def _find_blocks(self, m: Module) -> None:
        """Four output columns: those that have a block are present in the clusters that have given them a number."""
        for place, present in enumerate(self._present):
            found = []
            for lane in range(LANES):
                entry = self._of_column[lane][place]
                found.append(((entry.valid & (self._size(lane) != 0)) << entry.number)[: len(present)])
            m.d.sync += present.eq(present | any_of(found))

    def _meet_rows(self, m: Module) -> None:
        """Four rows: those that have a tile meet the blocks that are present."""
        for place, (present, stored) in enumerate(zip(self._present, self._stored, strict=True)):
            met = [masked(self._of_row[lane][place] & present, self._size(lane) != 0) for lane in range(LANES)]
            m.d.sync += stored.eq(stored | any_of(met))
            for lane in range(LANES):
                with m.If(met[lane].any()):
                    m.d.sync += self._last_met[place].eq(Cat(Const(lane, 2), self._table_word))
