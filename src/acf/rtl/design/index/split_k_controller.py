"""Split-K products in the index controller: the reduction is dealt out to mesh rows and groups of mesh columns.

Round by round: load the output tiles, find the last k_tile of every cluster of the controller's own mesh rows, wait for
the controllers that share the product, order the sums of the mesh columns, then make the packets of the k_tiles of its
mesh rows. Sums are ordered before the packets that they add, so
a full command memory never keeps back what another line waits for.
"""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.utils import bits_for

from acf.lowering.fabric_shape import SUM_BYTES
from acf.rtl.design.axi.spec import PAGE_BYTES
from acf.rtl.design.index.block_stream import WORD_BITS
from acf.rtl.design.index.split_k_scan import SplitKScan
from acf.rtl.design.index.split_k_tables import LANES
from acf.rtl.design.primitives.bits import any_of, count_ones, gathered, masked, search


class SplitKController(SplitKScan):
    """``start`` walks the split-K product of ``descriptor``, which holds until ``ends``, the last cycle.

    Ports are those of `IndexController`. With ``is_gap`` a command is for the adder behind a mesh column alone: its
    ``address`` tells flits of sums in which only other groups of mesh columns take part.
    """

    def elaborate(self, platform: object) -> Module:
        """Load, find, order, make; then the next round."""
        m = Module()
        self._make_state()
        self._make_tables(m)
        self._make_lanes(m)
        with m.FSM(name="split_k"):
            with m.State("IDLE"), m.If(self.start):
                m.next = "BEGIN"
            self._load_round(m)
            self._find_last(m)
            self._meet_others(m)
            with m.State("SUMS"):
                self._order_sums(m)
            self._step(m)
            with m.State("COLUMNS"):
                self._send_blocks(m, is_placed=False)
            with m.State("PLACE"):
                self._send_blocks(m, is_placed=True)
            with m.State("ROWS"):
                self._send_rows(m)
            with m.State("DONE"):
                for place, rounds in enumerate(self._rounds):
                    m.d.sync += rounds.eq(rounds + self._column_joined(place))
                m.d.sync += self._round.eq(self._round + 1)
                m.next = "ROUND"
                with m.If(self._round + 1 == self._field("column_rounds")):
                    m.d.comb += self.ends.eq(1)
                    m.next = "IDLE"
        return m

    # Sums.
    def _order_sums(self, m: Module) -> None:
        """One mesh column a cycle: the rows that have joined the round, or zeros where only its chain has."""
        sizes, shape = self.sizes.fabric, self.sizes.fabric.shape
        columns, column = range(shape.mesh_columns), self._place[: bits_for(shape.mesh_columns)]
        joined = [self._column_joined(place) for place in columns]
        chains = {
            size: Array([any_of(joined[place % size :: size]) for place in columns])[column]
            for size in self._group_sizes
        }
        rows = Array([Cat(*(self._joined[row, place] for row in range(self._rows))) for place in columns])[column]
        flits, line = Signal(bits_for(sizes.most_sum_flits)), Signal.like(self.line)
        strides = {size: shape.sum_flit_cycles * (shape.mesh_columns // size) for size in self._group_sizes}
        command = Signal(sizes.command(shape.mesh_rows, serial=False), name="sum_command")
        tile_flits = shape.tile**2 * SUM_BYTES // shape.link_bytes
        m.d.comb += [
            flits.eq(Array(self._owned)[column] * tile_flits),
            line.eq(column + shape.mesh_rows),
            self.valid.eq(self._by_groups(chains)),
            self.is_gap.eq(rows == 0),
            self.line.eq(line),
            self.word.eq(command),
        ]
        with m.If(rows == 0):
            m.d.comb += command.address.eq(flits)
        with m.Else():
            hops = shape.hop_cycles * shape.mesh_rows
            m.d.comb += [
                command.destinations.eq(rows),
                command.sum_flits.eq(flits),
                command.sum_stride.eq(self._by_groups({size: Const(stride) for size, stride in strides.items()})),
                command.sum_cycles.eq(hops + self._by_groups({size: flits * each for size, each in strides.items()})),
            ]
        with m.If(~self.valid | self.ready.bit_select(line, 1)):
            m.d.sync += self._place.eq(self._place + self.sizes.sharing)
            with m.If(column + self.sizes.sharing >= shape.mesh_columns):
                m.d.sync += [self._k_tile.eq(self.number), self._row.eq(self.number), self._group.eq(0)]
                m.next = "STEP"

    # K_tiles.
    def _step(self, m: Module) -> None:
        with m.State("STEP"):
            m.d.sync += self._makes.eq(1)
            self._begin_scan(m, self._k_tile, 0)
            with m.If(self._k_tile >= self._field("k_tiles")):
                m.next = "DONE"
        with m.State("MEET"):
            m.d.comb += self.memory_address.eq(self._batch + 2)
            m.d.sync += [self._batch.eq(self._batch + 2), self._table_word.eq(0), self._before.eq(0), self._sent.eq(0)]
            m.d.sync += [each.eq(0) for each in (*self._shift, *self._edge_valid)]
            m.next = "COLUMNS"
            with m.If(~any_of([masked(stored, bit) for stored, bit in self._in_group(self._stored)]).any()):
                self._to_next_k_tile(m)

    def _in_group(self, values: list[Signal]) -> list[tuple[Signal, Value]]:
        """Values by mesh column, each with whether the column is one of the current group."""
        bits = self._group_bits()
        return [(value, bits[place]) for place, value in enumerate(values)]

    def _to_next_k_tile(self, m: Module) -> None:
        """The next of the controller's mesh rows, or the first of the next group."""
        shape, sharing = self.sizes.fabric.shape, self.sizes.sharing
        m.d.sync += [self._row.eq(self._row + sharing), self._k_tile.eq(self._k_tile + sharing)]
        with m.If(self._row == self._own_rows[-1]):
            following = Signal(range(2 * shape.mesh_columns + 1), name="following_group")
            skipped = shape.mesh_rows - self._own_rows[-1] + self.number
            m.d.comb += following.eq(self._group + self._field("group_columns"))
            m.d.sync += [self._row.eq(self.number), self._k_tile.eq(self._k_tile + skipped)]
            m.d.sync += self._group.eq(Mux(following == shape.mesh_columns, 0, following))
        m.next = "STEP"

    # Four tiles at a time.
    def _make_lanes(self, m: Module) -> None:
        """Registers of the word whose packets are made, and what lies before each of its tiles."""
        shape = self.sizes.fabric.shape
        self._before, self._sent = Signal(WORD_BITS), Signal(LANES)
        self._four, self._placed_lane = Signal(WORD_BITS), Signal(range(LANES))
        self._shift = [
            Signal(bits_for(shape.accumulator_tiles), name=f"shift_{place}") for place in range(shape.mesh_columns)
        ]
        self._edge_valid = [Signal(name=f"edge_valid_{place}") for place in range(shape.mesh_columns)]

    def _offsets(self, m: Module, counts: list[Value], name: str) -> tuple[Array[Signal], Signal]:
        """What lies before each of four tiles of so many flits or entries, and behind the last."""
        sums = [Signal(WORD_BITS, name=f"{name}_before_{lane}") for lane in range(LANES + 1)]
        m.d.comb += sums[0].eq(self._before)
        for lane, count in enumerate(counts):
            m.d.comb += sums[lane + 1].eq(sums[lane] + count)
        return Array(sums[:LANES]), sums[LANES]

    def _move_on(self, m: Module, after_word: Value) -> Value:
        """Go on to the next word of sizes, behind which ``after_word`` lies; its address."""
        following = self._batch + 1
        m.d.sync += [
            self._batch.eq(following),
            self._table_word.eq(self._table_word + 1),
            self._before.eq(after_word),
            self._sent.eq(0),
        ]
        return following

    # Blocks.
    def _send_blocks(self, m: Module, is_placed: bool) -> None:
        """Send the blocks of four output columns that a cluster stores, one a cycle.

        Blocks that do not lie by k_tile have their first flit in an entry, which a cycle before ``is_placed`` reads.
        """
        sizes, shape, prefix = self.sizes.fabric, self.sizes.fabric.shape, "placed" if is_placed else "block"
        four = self._four if is_placed else self.memory_data
        takers = [self._takers(m, lane, f"{prefix}_takers_{lane}") for lane in range(LANES)]
        pending = Signal(LANES, name=f"{prefix}_pending")
        m.d.comb += pending.eq(Cat(*(each.any() for each in takers)) & ~self._sent)
        found = search(pending)
        lane = self._placed_lane if is_placed else found.lowest
        direct = self._field("direct")
        counts = [
            Mux(direct, four[8 * each : 8 * each + 7], four[8 * each : 8 * each + 8] != 0) for each in range(LANES)
        ]
        before, behind = self._offsets(m, counts, prefix)
        size, destinations = four.word_select(lane, 8), Array(takers)[lane]
        entry = Signal(WORD_BITS, name=f"{prefix}_entry")
        command = Signal(sizes.command(shape.mesh_columns, serial=True), name=f"{prefix}_command")
        pages = (self._field("parallel_page") - self._field("serial_page"))[:WORD_BITS]
        base = pages << (PAGE_BYTES // shape.link_bytes).bit_length() - 1
        first = self.memory_data if is_placed else self._block_first + before[lane]
        offers, ends = Signal(name=f"{prefix}_offers"), Signal(name=f"{prefix}_ends")
        m.d.comb += [
            entry.eq(self._at("entries_at") + self._block_first + before[lane]),
            offers.eq(1 if is_placed else found.any & direct),
            ends.eq(Mux(offers, self.ready.bit_select(self._row, 1) & ~found.several, ~found.any)),
            command.parallel.eq(1),
            command.packed.eq(size[7]),
            command.flits.eq(size[:7]),
            command.address.eq(first + base),
            command.destinations.eq(destinations),
            command.transposed.eq(self._field("parallel_transposed")),
            self.valid.eq(offers),
            self.line.eq(self._row),
            self.word.eq(command),
            self.memory_address.eq(entry if is_placed else self._batch),
        ]
        m.d.sync += [self._four.eq(four), self._placed_lane.eq(lane)]
        taken = offers & self.ready.bit_select(self._row, 1)
        with m.If(taken):
            m.d.sync += self._sent.eq(self._sent | (1 << lane))
            m.d.comb += self.memory_address.eq(self._batch)
            with m.If(Cat(lane, self._table_word) == self._field("column_tiles") - 1):
                m.d.sync += [each.eq(destinations[place]) for place, each in enumerate(self._edge_valid)]
            m.next = "COLUMNS"
        if not is_placed:
            with m.If(found.any & ~direct):
                m.d.comb += self.memory_address.eq(entry)
                m.next = "PLACE"
        with m.If(ends):
            m.d.comb += self.memory_address.eq(self._move_on(m, behind))
            with m.If(self._table_word + 1 == self._column_words):
                m.d.sync += [self._table_word.eq(0), self._before.eq(0)]
                m.next = "ROWS"

    def _takers(self, m: Module, lane: int, name: str) -> Signal:
        """The mesh columns whose clusters store the block of an output column."""
        takers = Signal(self.sizes.fabric.shape.mesh_columns, name=name)
        stored = []
        for place in range(len(takers)):
            entry = self._of_column[lane][place]
            stored.append(entry.valid & self._stored[place].bit_select(entry.number, 1))
        m.d.comb += takers.eq(Cat(*stored) & self._group_bits())
        return takers

    # Serial tiles.
    def _send_rows(self, m: Module) -> None:
        """Send the tiles of four rows, one a cycle; a row of the round without data only moves the banks' tiles on."""
        sizes, shape, four = self.sizes.fabric, self.sizes.fabric.shape, self.memory_data
        in_round = [
            Cat(*(self._of_row[lane][place].any() for place in range(shape.mesh_columns))).any()
            for lane in range(LANES)
        ]
        pending = Signal(LANES, name="rows_pending")
        m.d.comb += pending.eq(Cat(*in_round) & ~self._sent)
        found = search(pending)
        step, lane = self._field("serial_step"), found.lowest
        counts = [Mux(step == 0, four[8 * each : 8 * each + 7], step) for each in range(LANES)]
        before, behind = self._offsets(m, counts, "row")
        size = Signal(8, name="row_size")
        m.d.comb += size.eq(four.word_select(lane, 8))
        headers, destinations = self._headers(m, lane, size != 0)
        command = Signal(sizes.command(shape.mesh_columns, serial=True), name="row_command")
        moves, ends = Signal(name="row_moves"), Signal(name="row_ends")
        m.d.comb += [
            command.packed.eq(size[7]),
            command.flits.eq(size[:7]),
            command.address.eq(self._serial_first + before[lane]),
            command.destinations.eq(destinations),
            command.headers.eq(Cat(*headers)),
            command.transposed.eq(self._field("serial_transposed")),
            self.valid.eq(found.any & (destinations != 0)),
            self.line.eq(self._row),
            self.word.eq(command),
            moves.eq(found.any & (~self.valid | self.ready.bit_select(self._row, 1))),
            ends.eq(~found.any | (moves & ~found.several)),
            self.memory_address.eq(self._batch),
        ]
        with m.If(moves):
            m.d.sync += self._sent.eq(self._sent | (1 << lane))
            for place, shift in enumerate(self._shift):
                m.d.sync += shift.eq(shift + count_ones(self._row_columns(lane, place)))
        with m.If(ends):
            m.d.comb += self.memory_address.eq(self._move_on(m, behind))
            with m.If(self._table_word + 1 == self._row_words):
                self._to_next_k_tile(m)

    def _row_columns(self, lane: Value, place: int) -> Value:
        """The numbers of the output columns that a row's cluster accumulates."""
        return Array([self._of_row[each][place] for each in range(LANES)])[lane]

    def _headers(self, m: Module, lane: Value, has_data: Value) -> tuple[list[Any], Signal]:
        """The header of a row's tile for every mesh column, zero where it is no destination; the destinations."""
        sizes, shape = self.sizes.fabric, self.sizes.fabric.shape
        headers, destinations, tiles = [], Signal(shape.mesh_columns, name="row_destinations"), shape.accumulator_tiles
        for place in range(shape.mesh_columns):
            own, met = (Signal(tiles, name=f"{name}_{place}") for name in ("own", "met"))
            stored, edge = self._stored[place], self._edge_valid[place]
            count, is_last = Signal(bits_for(tiles), name=f"count_{place}"), Signal(name=f"is_last_{place}")
            closes = Array([self._last[row, place] if row in self._own_rows else Const(0) for row in range(self._rows)])
            header = Signal(data.StructLayout(dict(sizes.header.members)), name=f"header_{place}")
            m.d.comb += [
                own.eq(self._row_columns(lane, place)),
                met.eq(masked(own & self._present[place], has_data & self._group_bits()[place])),
                destinations[place].eq(met.any()),
                count.eq(count_ones(stored)),
                is_last.eq(self._last_met[place] == Cat(lane[:2], self._table_word)),
            ]
            with m.If(destinations[place]):
                m.d.comb += [
                    header.blocks.eq(gathered(met, stored)),
                    header.sums.eq(gathered(met, own) << self._shift[place]),
                    header.count.eq(count),
                    header.edge_valid.eq(edge if not sizes.skips_both else 0),
                    header.edge.eq(Mux(edge, count - 1, 0) if not sizes.skips_both else 0),
                    header.round.eq(self._rounds[place]),
                    header.last_of_k_step.eq(is_last),
                    header.last_of_round.eq(is_last & (closes[self._row] == self._k_tile)),
                ]
            headers.append(header.as_value())
        return headers, destinations
