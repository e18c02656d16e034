"""The control of an SCU: walks the non-zeros of its rows, without a cycle for a zero."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.fabric.sizes import ROUND_BITS, FabricSizes
from acf.rtl.design.primitives.bits import from_place, search, word_of, wrapped
from acf.rtl.design.primitives.unit_gates import stopped_unless


class Walker(Component):
    """Walks the queued tiles in order: row by row, non-zero by non-zero, block by block, then along the block's row.

    Where the SCU holds a block: block by block, row by row, non-zero by non-zero, every other row from its end: a row
    begins near the k at which the one before ended, so that less switches. Either order takes the same cycles.

    A tile begins when it and all blocks of its k_step have arrived (``arrived`` counts them) and its bank is empty
    (``emptied`` counts those). ``begins`` is 1 in its first cycle, ``ends`` in its last. ``request`` names the current
    pair of non-zero and block in all of its cycles. ``scu`` selects the rows that are its own.

    A pair takes as many cycles as the row of the block has non-zeros or, where only zeros of the serial operand are
    skipped, as it is wide; and at least one turn at the port. In its ``turn`` the port gives, as ``last_cycle``, the
    number of the pair's last cycle; every pair has a turn before it can end.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        shape = sizes.shape
        super().__init__(
            {
                "scu": In(bits_for(shape.scus_per_cluster - 1)),
                "write": In(1),
                "write_place": In(bits_for(shape.queue_packets - 1)),
                "write_item": In(sizes.item),
                "arrived": In(sizes.due_bits),
                "emptied": In(ROUND_BITS),
                "edge_cycles": In(bits_for(sizes.chunks)),
                "turn": In(1),
                "last_cycle": In(bits_for(sizes.chunks - 1)),
                "item_there": Out(1),
                "blocks_there": Out(1),
                "reason": Out(3),
                "begins": Out(1),
                "works": Out(1),
                "scans": Out(1),
                "ends": Out(1),
                "operation": Out(sizes.operation),
                "request": Out(sizes.request),
                **({"awake": Out(1)} if sizes.gates_units else {}),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        """The state is the position in the current tile; between tiles it is at the beginning."""
        m, sizes, shape = Module(), self.sizes, self.sizes.shape
        m.submodules.items = memory = Memory(shape=sizes.item, depth=max(2, shape.queue_packets), init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        place, available = Signal(range(max(2, shape.queue_packets))), Signal(range(shape.queue_packets + 1))
        item = read.data
        m.d.comb += [
            write.en.eq(self.write),
            write.addr.eq(self.write_place),
            write.data.eq(self.write_item),
            read.addr.eq(place),
        ]
        working, active, empty = Signal(), Signal(), Signal()
        still_due, ahead = Signal(sizes.due_bits), Signal(ROUND_BITS)
        m.d.comb += [
            self.item_there.eq(available != 0),
            still_due.eq(self.arrived - item.due),
            self.blocks_there.eq(~still_due[-1]),
            ahead.eq(item.round - self.emptied),
            self.reason.eq(item.reason),
            self.begins.eq(~working & self.item_there & self.blocks_there & (ahead[1:] == 0)),
            active.eq(working | self.begins),
            empty.eq(item.bitmap == 0),
            self.works.eq(active & ~empty),
            self.scans.eq(active & empty),
        ]
        chunk, pair_is_over = Signal(range(max(2, sizes.chunks))), Signal()
        next_value, next_block = Signal(), Signal()
        row, k, is_last_value = self._walk_values(m, item.bitmap, next_value)
        block, tile_of_sums, is_last_block = self._walk_blocks(m, item, next_block)
        m.d.comb += [
            pair_is_over.eq(chunk == self._last_cycle(m, item, block)),
            next_value.eq(self.works & pair_is_over & (is_last_block | sizes.holds_sums)),
            next_block.eq(self.works & pair_is_over & (is_last_value | (not sizes.holds_sums))),
            self.ends.eq(active & (empty | (pair_is_over & is_last_block & is_last_value))),
        ]
        m.d.sync += available.eq(available + self.write - self.ends)
        with m.If(active):
            m.d.sync += working.eq(~self.ends)
        with m.If(self.works):
            m.d.sync += chunk.eq(Mux(pair_is_over, 0, chunk + 1))
        with m.If(self.ends):
            m.d.sync += place.eq(wrapped(place + 1, shape.queue_packets))
        sum_row = Cat(row, tile_of_sums) if sizes.scu_rows > 1 else tile_of_sums
        within = Const(0, bits_for(sizes.chunks - 1)) if sizes.skips_both else chunk
        own_scu = self.scu if shape.scus_per_cluster > 1 else Const(0, 0)
        m.d.comb += [
            self.operation.valid.eq(self.works),
            self.operation.start.eq(chunk == 0),
            self.operation.bank.eq(item.round[0]),
            self.operation.address.eq(Cat(within, sum_row) if sizes.chunks > 1 else sum_row),
            self.request.place.eq(place),
            self.request.row.eq(Cat(own_scu, row)),
            self.request.k.eq(k),
            self.request.slot.eq(wrapped(Cat(item.base, Const(0, 1)) + block, shape.parallel_slots)),
        ]
        if not sizes.gates_units:
            return m
        m.d.comb += self.awake.eq(active | self.write | (self.turn & sizes.skips_both))
        return stopped_unless(self.awake, m)

    def _walk_values(self, m: Module, bitmap: Value, moves: Value) -> tuple[Value, Value, Value]:
        """Row and k of the current non-zero, and whether it is the tile's last."""
        sizes, tile = self.sizes, self.sizes.shape.tile
        walked = _walk_lines(m, bitmap, tile, moves, turns=sizes.holds_sums)
        row, k = walked.line, walked.place
        if sizes.holds_sums:
            fresh = self._is_fresh(m, walked, moves)
            m.d.comb += [
                self.operation.first.eq(walked.begins_line),
                self.operation.last.eq(walked.ends_line),
                self.operation.k.eq(k),
                self.request.valid.eq(self.works),
                self.request.fresh.eq(fresh),
                self.request.opens.eq(walked.begins),
            ]
            if sizes.shape.scus_per_port > 1:
                m.d.comb += self.operation.fresh.eq(fresh)
        return row, k, walked.is_last

    def _is_fresh(self, m: Module, walked: "Walked", moves: Value) -> Value:
        """Whether no row before the current one had a non-zero at the current k, so that the SCU lacks the block's."""
        seen = Signal(self.sizes.shape.tile)
        with m.If(moves & walked.ends_line):
            m.d.sync += seen.eq(Mux(walked.is_last, 0, seen | walked.bits))
        return ~seen.bit_select(walked.place, 1)

    def _walk_blocks(self, m: Module, item: Any, moves: Value) -> tuple[Value, Value, Value]:
        """The current block, the tile of the bank that it adds to, and whether it is the value's last."""
        tiles = range(max(2, self.sizes.shape.accumulator_tiles))
        block, tile_of_sums = Signal(tiles), Signal(tiles)
        first_block, first_tile = Signal(tiles), Signal(tiles)
        blocks = search(from_place(item.blocks, first_block))
        sums = search(from_place(item.sums, first_tile))
        m.d.comb += [block.eq(blocks.lowest), tile_of_sums.eq(sums.lowest)]
        with m.If(moves):
            m.d.sync += [first_block.eq(block + 1), first_tile.eq(tile_of_sums + 1)]
            with m.If(~blocks.several):
                m.d.sync += [first_block.eq(0), first_tile.eq(0)]
        return block, tile_of_sums, ~blocks.several

    def _last_cycle(self, m: Module, item: Any, block: Value) -> Value:
        """Number of the last cycle of the current pair."""
        sizes = self.sizes
        if not sizes.skips_both:
            return Mux(item.edge_valid & (item.edge == block), self.edge_cycles - 1, sizes.chunks - 1)
        last = Signal.like(self.last_cycle)
        with m.If(self.turn):
            m.d.sync += last.eq(self.last_cycle)
        return Mux(self.turn, self.last_cycle, last)


class Walked(NamedTuple):
    """Line and place of the current bit, all bits of the line, and whether it is the first or last of line and all."""

    line: Value
    place: Value
    bits: Value
    is_last: Value
    begins_line: Value
    ends_line: Value
    begins: Value


def _walk_lines(m: Module, bitmap: Value, length: int, moves: Value, turns: bool) -> Walked:
    """Walk the set bits of ``bitmap``, lines of ``length`` bits, line by line, and begin again after the last.

    ``turns``: odd lines are walked from their end.
    """
    line, place = Signal(range(max(1, len(bitmap) // length))), Signal(range(length))
    first_line, first_place = Signal.like(line), Signal.like(place)
    has_bits, line_bits = Signal(len(bitmap) // length), Signal(length)
    any_bits = Cat(*(bitmap[start : start + length].any() for start in range(0, len(bitmap), length)))
    m.d.comb += has_bits.eq(from_place(any_bits, first_line))
    lines = search(has_bits)
    bits = word_of(bitmap, line, length)
    falls = line[0] if turns and len(line) else Const(0, 1)
    walked = Mux(falls, Cat(*(bits[each] for each in reversed(range(length)))), bits)
    m.d.comb += [line.eq(lines.lowest), line_bits.eq(from_place(walked, first_place))]
    places = search(line_bits)
    m.d.comb += place.eq(places.lowest)
    with m.If(moves):
        m.d.sync += [first_place.eq(place + 1), first_line.eq(line)]
        with m.If(~places.several):
            m.d.sync += [first_place.eq(0), first_line.eq(Mux(lines.several, line + 1, 0))]
    begins_line = first_place == 0
    is_last = ~(places.several | lines.several)
    return Walked(
        line,
        place ^ falls.replicate(len(place)),
        bits,
        is_last,
        begins_line,
        ~places.several,
        begins_line & (first_line == 0),
    )
