"""Which tiles of every cluster's bank a k_step adds to: kept by the mask, with data, and with a block to add.

Without a mask a cluster meets all blocks of its output columns with every serial tile. With one, blocks that a cluster
stores, their order of arrival and its last tile differ from cluster to cluster, so each has a bit for every tile of its
bank.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.utils import bits_for

from acf.lowering.product_index import ROWS_PER_WORD, row_bit_words
from acf.rtl.design.index.block_stream import WORD_BITS
from acf.rtl.design.index.controller_units import ControllerUnits
from acf.rtl.design.primitives.bits import any_of, masked

LANES = 4
"""Sizes of row tiles in a word of the index."""


class BankTiles(ControllerUnits):
    """The states COLUMN and BITS (mask of a round) and SCAN (tiles with data), and the notes of every block."""

    def _make_state(self, m: Module) -> None:
        super()._make_state(m)
        shape = self.sizes.fabric.shape
        tiles = shape.accumulator_tiles
        self._tile = Signal(8)
        self._shift = [Signal(bits_for(tiles), name=f"shift_{place}") for place in range(shape.mesh_columns)]
        self._mask_base, self._mask_next = Signal(WORD_BITS), Signal(WORD_BITS)
        self._begun = Signal()  # a word was asked for

    def _make_units(self, m: Module) -> None:
        super()._make_units(m)
        shape = self.sizes.fabric.shape
        self._bank_place = self._owner_place[: bits_for(shape.accumulator_tiles - 1)]
        self._spots = [self._spots_of_block(m, place) for place in range(shape.mesh_columns)]
        self._users = [
            Cat(*((self._live[row, place] & spots).any() for row in self._all_rows))
            if place in self._own_columns
            else Const(0)
            for place, spots in enumerate(self._spots)
        ]

    def _spots_of_block(self, m: Module, place: int) -> Signal:
        """The tiles of a bank that the current block would add to, one of every row tile."""
        tiles = self.sizes.fabric.shape.accumulator_tiles
        columns = [0] + [sum(1 << first for first in range(0, tiles, owned)) for owned in range(1, tiles + 1)]
        spots = Signal(tiles, name=f"spots_{place}")
        m.d.comb += spots.eq(self._table(columns, self._owned[place]) << self._bank_place)
        return spots

    def _table(self, values: list[int], index: Value) -> Value:
        """An entry of a table of numbers of a bank's tiles."""
        tiles = self.sizes.fabric.shape.accumulator_tiles
        return Array(Const(value & (1 << tiles) - 1, tiles) for value in values)[index]

    def _ones(self, place: int, lane: int = 0) -> Value:
        """The tiles of one row tile of a bank, that of row tile ``lane``."""
        tiles = self.sizes.fabric.shape.accumulator_tiles
        return self._table([((1 << owned) - 1) << lane * owned for owned in range(tiles + 1)], self._owned[place])

    def _note_block(self, m: Module, places: Value) -> None:
        """Note the current block for this controller's clusters of the mesh columns ``places`` that use it."""
        edge = self._blocks.entry[:16] == self._field("column_tiles") - 1
        for (row, place), work in self._work.items():
            found = self._live[row, place] & self._spots[place]
            with m.If(places[place] & (found != 0)):
                stored = self._stored[row, place]
                m.d.sync += [work.eq(work | found), stored.eq(stored | (1 << self._bank_place))]
                if not self.sizes.fabric.skips_both:
                    m.d.sync += self._edge_valid[row, place].eq(edge)

    # The mask of a round.
    def _read_mask(self, m: Module) -> None:
        """Column by column; of one of this round, the bit of every row tile of every part."""
        column = Signal(16)
        spot, at, words = Signal(8), Signal(WORD_BITS), (self._field("column_tiles") + 31) >> 5
        owned = Array(self._owned)[self._owner_column]
        m.d.comb += column.eq(self._place)
        with m.State("COLUMN"):
            m.d.comb += self._owner_out.addr.eq(column)
            m.d.sync += [self._row.eq(0), self._group.eq(0), self._tile.eq(0), self._begun.eq(0)]
            m.d.sync += [spot.eq(self._owner_place), at.eq(self._mask_base + column[5:])]
            with m.If(self._owner_round == self._column_round):
                m.next = "BITS"
            with m.Else():
                self._next_column(m)
        with m.State("BITS"):
            m.d.comb += [self._owner_out.addr.eq(column), self.memory_address.eq(at)]
            m.d.sync += [self._begun.eq(1), at.eq(at + words)]
            with m.If(self._begun):
                self._keep(m, self.memory_data.bit_select(column[:5], 1), spot)
                with m.If(self._to_next_part(m, self._all_rows)):
                    m.d.sync += [self._tile.eq(self._tile + 1), spot.eq(spot + owned)]
                    with m.If(self._tile + 1 == self._field("row_tiles")):
                        m.d.sync += self._mask_next.eq(at - column[5:])
                        self._next_column(m)

    def _next_column(self, m: Module) -> None:
        m.d.sync += self._place.eq(self._place + 1)
        m.next = "COLUMN"
        with m.If(self._place + 1 == self._field("column_tiles")):
            m.next = "ORDER"

    def _keep(self, m: Module, bit: Value, spot: Signal) -> None:
        """Add a bit of the mask to the bank of the cluster of this part that owns the column."""
        place = Signal(range(2 * self.sizes.fabric.shape.mesh_columns), name="kept_place")
        m.d.comb += place.eq(self._group + self._owner_column)
        for (row, column), kept in self._kept.items():
            with m.If((self._row == row) & (place == column)):
                m.d.sync += kept.eq(kept | (bit << spot[: bits_for(len(kept) - 1)]))

    # Row tiles with data.
    @property
    def _all_rows(self) -> range:
        return range(self.sizes.fabric.shape.mesh_rows)

    def _begin_scan(self, m: Module) -> None:
        """Ask for the mesh rows with data of the first group, or with a mask for the first sizes of the first part."""
        first = Mux(self._field("masked"), self._live_words() + 2, 0)
        m.d.sync += [self._place.eq(first), self._begun.eq(0), self._tile.eq(0)]
        m.d.sync += [shift.eq(0) for shift in self._shift]

    def _scan(self, m: Module) -> None:
        """Read which mesh rows of every group have data, or with a mask which row tiles of every part; then WALK.

        Holes between tiles matter only with a mask: they may leave a cluster without a tile that it keeps.
        """
        masks, asked, word = self._field("masked"), Signal(8), Signal(8)
        words = Mux(masks, (self._field("row_tiles") + LANES - 1) >> 2, row_bit_words(len(self._all_rows)))
        ends_part = asked + 1 == words
        m.d.comb += self.memory_address.eq(self._batch + self._place)
        m.d.sync += [
            self._begun.eq(1),
            word.eq(asked),
            asked.eq(Mux(ends_part, 0, asked + 1)),
            self._place.eq(self._place + Mux(masks & ends_part, 3, 1)),
        ]
        with m.If(self._begun):
            self._mark_live(m, word)
            m.d.sync += [shift.eq((shift + (owned << 2))[: len(shift)]) for shift, owned in self._shifts()]
            with m.If(word + 1 == words):
                m.d.sync += [shift.eq(0) for shift in self._shift]
                with m.If(self._to_next_part(m, self._all_rows, ~masks)):
                    m.d.sync += [self._place.eq(0), asked.eq(0)]
                    m.d.comb += [self._blocks.start.eq(1), self.memory_address.eq(self._blocks.memory_address)]
                    m.next = "WALK"

    def _shifts(self) -> list[tuple[Signal, Signal]]:
        return list(zip(self._shift, self._owned, strict=True))

    def _mark_live(self, m: Module, word: Signal) -> None:
        """Mark the kept tiles of the banks whose row tiles have data, by the word that has arrived.

        Without a mask all tiles of a mesh row with data are marked: none is sent behind the last one with data.
        """
        tiles, masks = self.sizes.fabric.shape.accumulator_tiles, self._field("masked")
        has = [self.memory_data[8 * lane : 8 * lane + 8] != 0 for lane in range(LANES)]
        for place in range(self.sizes.fabric.shape.mesh_columns):
            found = Signal(tiles, name=f"found_{place}")
            lanes = any_of([masked(self._ones(place, lane), has[lane]) for lane in range(LANES)])
            m.d.comb += found.eq(Mux(masks, lanes << self._shift[place], -1))
            with m.If(self._group_mask()[place]):
                for row in self._all_rows if place in self._own_columns else self._own_rows:
                    live, (of_word, bit) = self._live[row, place], divmod(row, ROWS_PER_WORD)
                    with m.If(Mux(masks, self._row == row, self.memory_data[bit] & (word == of_word))):
                        m.d.sync += live.eq(live | (found & self._kept[row, place]))
