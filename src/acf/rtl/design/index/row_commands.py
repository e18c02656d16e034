"""The commands of the mesh rows: one for every serial tile with data, with a header for each cluster that takes it."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data

from acf.rtl.design.index.bank_tiles import LANES, BankTiles
from acf.rtl.design.index.block_stream import WORD_BITS
from acf.rtl.design.primitives.bits import count_ones, gathered


class RowCommands(BankTiles):
    """The states PART, SIZES and TILE: the parts of the controller's own mesh rows, one after the other."""

    def _send_rows(self, m: Module) -> None:
        columns = range(self.sizes.fabric.shape.mesh_columns)
        self._tiles, self._last_tile = Signal(8), Signal(8)
        self._before, self._at_word = Signal(WORD_BITS), Signal(WORD_BITS)
        has_work = Signal()
        works = Cat(*(self._of_row(self._work, place).any() for place in columns))
        m.d.comb += has_work.eq((works & self._group_mask()) != 0)
        with m.State("PART"):  # the first flit has arrived
            m.d.comb += self.memory_address.eq(self._batch + 1)
            m.d.sync += [self._tile.eq(0), self._before.eq(self.memory_data), self._at_word.eq(self._batch + 2)]
            m.d.sync += [each.eq(0) for each in self._shift]
            m.next = "SIZES"
            with m.If(~has_work):
                self._leave_part(m)
        with m.State("SIZES"):  # the counts have arrived
            m.d.comb += self.memory_address.eq(self._at_word)
            m.d.sync += [self._tiles.eq(self.memory_data), self._last_tile.eq(self.memory_data[8:16])]
            m.next = "TILE"
        with m.State("TILE"):
            self._send_tile(m)

    def _begin_parts(self, m: Module) -> None:
        """Ask for the first of the controller's own batches of the k_tile."""
        first = Signal(WORD_BITS)
        m.d.comb += [
            first.eq(self._batch + self._live_words() + self.number * self._row_words),
            self.memory_address.eq(first),
        ]
        m.d.sync += [self._batch.eq(first), self._row.eq(self.number), self._group.eq(0)]
        m.next = "PART"

    def _leave_part(self, m: Module) -> None:
        columns, following = self.sizes.fabric.shape.mesh_columns, Signal(WORD_BITS)
        ends_row = self._group + self._field("group_columns") == columns
        skipped = Mux(ends_row, (self.sizes.sharing - 1) * self._row_words, 0)
        m.d.comb += [
            following.eq(self._batch + self._batch_words() + skipped),
            self.memory_address.eq(following),
        ]
        m.d.sync += self._batch.eq(following)
        m.next = "PART"
        with m.If(self._to_next_part(m, self._own_rows)):
            m.next = "NEXT"

    def _send_tile(self, m: Module) -> None:
        """One tile a cycle; a tile that is not sent, for want of data or of outputs, only moves the sums on."""
        sizes, shape = self.sizes.fabric, self.sizes.fabric.shape
        lane, size, moves, ends = self._tile[:2], Signal(8), Signal(), Signal()
        command = Signal(sizes.command(shape.mesh_columns, serial=True))
        m.d.comb += ends.eq(self._tile + 1 == self._last_tile)
        first_flits, behind = self._first_flits(m)
        headers, destinations = self._headers(m, ends)
        m.d.comb += [
            self.memory_address.eq(self._at_word),
            size.eq(self.memory_data.word_select(lane, 8)),
            command.packed.eq(size[7]),
            command.flits.eq(size[:7]),
            command.address.eq(first_flits[lane]),
            command.destinations.eq(destinations),
            command.headers.eq(Cat(*headers)),
            command.transposed.eq(self._field("serial_transposed")),
            self.valid.eq((size != 0) & (destinations != 0)),
            self.line.eq(self._row),
            self.word.eq(command),
            moves.eq(~self.valid | self.ready.bit_select(self._row, 1)),
        ]
        with m.If(moves):
            m.d.sync += self._tile.eq(self._tile + 1)
            m.d.sync += [shift.eq(shift + owned) for shift, owned in zip(self._shift, self._owned, strict=True)]
            with m.If(lane == LANES - 1):
                m.d.comb += self.memory_address.eq(self._at_word + 1)
                m.d.sync += [self._at_word.eq(self._at_word + 1), self._before.eq(behind)]
            with m.If(ends):
                self._leave_part(m)

    def _first_flits(self, m: Module) -> tuple[Array[Signal], Signal]:
        """First flits of the four tiles of the word that has arrived, and of the tile behind them."""
        firsts, step = [self._before], self._field("serial_step")
        for lane in range(LANES):
            behind = Signal(WORD_BITS, name=f"first_flit_{lane + 1}")
            flits = self.memory_data[8 * lane : 8 * lane + 7]
            m.d.comb += behind.eq(firsts[-1] + Mux(step == 0, flits, step))
            firsts.append(behind)
        return Array(firsts[:LANES]), firsts[LANES]

    def _headers(self, m: Module, ends: Signal) -> tuple[list[Any], Signal]:
        """The header of the current tile for every mesh column, zero where it is no destination; the destinations.

        ``ends``: the tile is the last with data, which without a mask is the last of every cluster.
        """
        sizes, shape = self.sizes.fabric, self.sizes.fabric.shape
        headers, destinations = [], Signal(shape.mesh_columns)
        for place in range(shape.mesh_columns):
            closes, rounds, work, stored, edge = (
                self._of_row(table, place)
                for table in (self._last, self._rounds, self._work, self._stored, self._edge_valid)
            )
            left, met, count = (Signal(shape.accumulator_tiles, name=f"{n}_{place}") for n in ("left", "met", "count"))
            is_last = ((left & ~self._ones(place)) == 0) | (ends & ~self._field("masked"))
            header = Signal(data.StructLayout(dict(sizes.header.members)), name=f"header_{place}")
            m.d.comb += [
                left.eq(work >> self._shift[place]),
                met.eq(left & self._ones(place)),
                count.eq(count_ones(stored)),
                destinations[place].eq((met != 0) & self._group_mask()[place]),
            ]
            with m.If(destinations[place]):
                m.d.comb += [
                    header.blocks.eq(gathered(met, stored)),
                    header.sums.eq(met << self._shift[place]),
                    header.count.eq(count),
                    header.edge_valid.eq(edge),
                    header.edge.eq(Mux(edge, count - 1, 0)),
                    header.round.eq(rounds),
                    header.last_of_k_step.eq(is_last),
                    header.last_of_round.eq(is_last & (closes == self._order)),
                    header.tiles.eq(self._tiles * self._owned[place]),
                ]
            headers.append(header.as_value())
        return headers, destinations
