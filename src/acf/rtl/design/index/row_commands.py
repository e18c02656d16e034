"""The commands of the mesh rows: one for every serial tile with data, with a header for each cluster that takes it."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data

from acf.rtl.design.index.bank_tiles import BankTiles
from acf.rtl.design.index.controller_units import WORD_BITS
from acf.rtl.design.primitives.bits import count_ones, gathered


class RowCommands(BankTiles):
    """The states PART, COUNTS, SIZES, SUM and TILE: one part of the mesh after the other, four tiles at a time."""

    def _send_rows(self, m: Module) -> None:
        shape = self.sizes.fabric.shape
        self._first_flit, self._tiles, self._last_tile = Signal(WORD_BITS), Signal(8), Signal(8)
        self._four, self._at_word, self._flit = Signal(WORD_BITS), Signal(WORD_BITS), Signal(WORD_BITS)
        works = [Cat(*(self._work[row, n].any() for n in range(shape.mesh_columns))) for row in range(shape.mesh_rows)]
        has_work = Signal()
        m.d.comb += has_work.eq(((Array(works)[self._row] & self._group_mask()) != 0) & self._is_mine(self._row))
        with m.State("PART"):
            m.d.comb += self.memory_address.eq(self._batch)
            m.d.sync += [self._tile.eq(0), self._at_word.eq(self._batch + 2), *(each.eq(0) for each in self._shift)]
            m.next = "COUNTS"
            with m.If(~has_work):
                self._leave_part(m)
        with m.State("COUNTS"):
            m.d.comb += self.memory_address.eq(self._batch + 1)
            m.d.sync += [self._first_flit.eq(self.memory_data), self._flit.eq(self.memory_data)]
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
            self._send_tile(m)

    def _leave_part(self, m: Module) -> None:
        m.d.sync += self._batch.eq(self._batch + self._batch_words())
        m.next = "PART"
        with m.If(self._to_next_part(m)):
            m.next = "NEXT"

    def _send_tile(self, m: Module) -> None:
        """One tile a cycle; a tile that is not sent, for want of data or of outputs, only moves the sums on."""
        sizes, shape = self.sizes.fabric, self.sizes.fabric.shape
        lane, size, moves, ends = self._tile[:2], Signal(8), Signal(), Signal()
        command = Signal(sizes.command(shape.mesh_columns, serial=True))
        step, packed_place = self._field("serial_step"), Signal(WORD_BITS)
        headers, destinations = self._headers(m)
        m.d.comb += [
            self.memory_address.eq(self._at_word),
            size.eq(self._four.word_select(lane, 8)),
            ends.eq(self._tile + 1 == self._last_tile),
            packed_place.eq(self._first_flit + self._tile_sums.offsets.word_select(lane, WORD_BITS)),
            command.packed.eq(size[7]),
            command.flits.eq(size[:7]),
            command.address.eq(Mux(step == 0, packed_place, self._flit)),
            command.destinations.eq(destinations),
            command.headers.eq(Cat(*headers)),
            command.transposed.eq(self._field("serial_transposed")),
            self.valid.eq((size != 0) & (destinations != 0)),
            self.line.eq(self._row),
            self.word.eq(command),
            moves.eq(~self.valid | self.ready.bit_select(self._row, 1)),
        ]
        with m.If(moves):
            m.d.sync += [self._tile.eq(self._tile + 1), self._flit.eq(self._flit + step)]
            m.d.sync += [shift.eq(shift + owned) for shift, owned in zip(self._shift, self._owned, strict=True)]
            with m.If(ends):
                self._leave_part(m)
            with m.Elif(lane == 3):
                m.next = "SUM"

    def _headers(self, m: Module) -> tuple[list[Any], Signal]:
        """The header of the current tile for every mesh column, zero where it is no destination; the destinations."""
        sizes, shape = self.sizes.fabric, self.sizes.fabric.shape
        headers, destinations = [], Signal(shape.mesh_columns)
        for place in range(shape.mesh_columns):
            closes, rounds, work, stored, edge = (
                Array([table[row, place] for row in range(shape.mesh_rows)])[self._row]
                for table in (self._last, self._rounds, self._work, self._stored, self._edge_valid)
            )
            left, met, count = (Signal(shape.accumulator_tiles, name=f"{n}_{place}") for n in ("left", "met", "count"))
            is_last = (left & ~self._ones(place)) == 0
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
