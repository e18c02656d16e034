"""The walk of a unit over the non-zeros of its rows: one cycle per step, no cycle for a zero."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.fabric.bits import any_of, clear_lowest, lowest_set, wrapped
from acf.rtl.fabric.sizes import ROUND_BITS, FabricSizes


class Walker(Component):
    """Takes the queued pieces in order; row by row, non-zero by non-zero, block by block, then along the block's row.

    A piece begins when it and all blocks of its step have come (``arrived`` counts them) and its bank is empty
    (``emptied`` counts those). ``begins`` is 1 in its first cycle, ``ends`` in its last. In the first cycle of every
    pair of non-zero and block ``asks`` is 1 with ``request``. ``unit`` says which rows are its own.

    A pair takes as many cycles as the row of the block has non-zeros (``counts`` of all rows come with the block) or,
    where only zeros of the serial operand are skipped, as it is wide; and at least a turn at the port.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        shape = sizes.shape
        super().__init__(
            {
                "unit": In(bits_for(shape.units_per_cluster - 1)),
                "write": In(1),
                "write_place": In(bits_for(shape.queue_packets - 1)),
                "write_item": In(sizes.item),
                "arrived": In(sizes.due_bits),
                "emptied": In(ROUND_BITS),
                "edge_cycles": In(bits_for(sizes.chunks)),
                "counts_write": In(1),
                "counts_slot": In(bits_for(shape.parallel_slots - 1)),
                "counts": In(sizes.count_bits * shape.tile),
                "item_there": Out(1),
                "blocks_there": Out(1),
                "reason": Out(3),
                "begins": Out(1),
                "works": Out(1),
                "scans": Out(1),
                "ends": Out(1),
                "operation": Out(sizes.operation),
                "asks": Out(1),
                "request": Out(sizes.request),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The state is what is left of the current piece; in the cycle in which it begins, all of it is."""
        m, sizes, shape = Module(), self.sizes, self.sizes.shape
        m.submodules.items = memory = Memory(shape=sizes.item, depth=max(2, shape.queue_packets), init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        place, available = Signal(range(max(2, shape.queue_packets))), Signal(range(shape.queue_packets + 1))
        item = read.data
        header = item.header
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
            ahead.eq(header.round - self.emptied),
            self.reason.eq(item.reason),
            self.begins.eq(~working & self.item_there & self.blocks_there & (ahead[1:] == 0)),
            active.eq(working | self.begins),
            empty.eq(item.pattern == 0),
            self.works.eq(active & ~empty),
            self.scans.eq(active & empty),
        ]
        tile = shape.tile
        rows_left, blocks_left = Signal(sizes.unit_rows * tile), Signal(shape.accumulator_tiles)
        sums_left, chunk_left = Signal(shape.accumulator_tiles), Signal(range(max(2, sizes.chunks)))
        rows, blocks, sums, chunk = (Signal.like(each) for each in (rows_left, blocks_left, sums_left, chunk_left))
        m.d.comb += [
            rows.eq(Mux(working, rows_left, item.pattern)),
            blocks.eq(Mux(working, blocks_left, header.blocks)),
            sums.eq(Mux(working, sums_left, header.sums)),
            chunk.eq(Mux(working, chunk_left, 0)),
        ]
        row, step = Signal(range(max(2, sizes.unit_rows))), Signal(range(tile))
        block, tile_of_sums = (
            Signal(range(max(2, shape.accumulator_tiles))),
            Signal(range(max(2, shape.accumulator_tiles))),
        )
        row_bits = Signal(tile)
        m.d.comb += [
            row.eq(lowest_set([any_of(list(rows[place * tile :][:tile])) for place in range(sizes.unit_rows)])),
            row_bits.eq(rows.word_select(row, tile)),
            step.eq(lowest_set(row_bits)),
            block.eq(lowest_set(blocks)),
            tile_of_sums.eq(lowest_set(sums)),
        ]
        rows_after, blocks_after = Signal.like(rows), Signal.like(blocks)
        row_is_over, pair_is_over, value_is_over = Signal(), Signal(), Signal()
        slot = Signal(range(max(2, shape.parallel_slots)))
        m.d.comb += slot.eq(wrapped(Cat(item.base, 0) + block, shape.parallel_slots))
        cycles = self._row_cycles(m, header, block, slot, step)
        m.d.comb += [
            rows_after.eq(clear_lowest(rows)),  # rows lie one after the other, so the lowest bit is the current one
            blocks_after.eq(clear_lowest(blocks)),
            pair_is_over.eq(chunk == cycles - 1),
            value_is_over.eq(pair_is_over & (blocks_after == 0)),
            row_is_over.eq(value_is_over & (rows_after == 0)),
            self.ends.eq(active & (empty | row_is_over)),
        ]
        m.d.sync += available.eq(available + self.write - self.ends)
        with m.If(active):
            m.d.sync += [
                working.eq(~self.ends),
                chunk_left.eq(Mux(pair_is_over, 0, chunk + 1)),
                blocks_left.eq(Mux(value_is_over, header.blocks, Mux(pair_is_over, blocks_after, blocks))),
                sums_left.eq(Mux(value_is_over, header.sums, Mux(pair_is_over, clear_lowest(sums), sums))),
                rows_left.eq(Mux(value_is_over, rows_after, rows)),
            ]
        with m.If(self.ends):
            m.d.sync += place.eq(wrapped(place + 1, shape.queue_packets))
        m.d.comb += [
            self.operation.valid.eq(self.works),
            self.operation.start.eq(chunk == 0),
            self.operation.bank.eq(header.round[0]),
            self.operation.address.eq(
                (tile_of_sums * sizes.unit_rows + row) * sizes.chunks + (0 if sizes.skips_both else chunk)
            ),
            self.asks.eq(self.works & (chunk == 0)),
            self.request.place.eq(place),
            self.request.row.eq(row * shape.units_per_cluster + self.unit),
            self.request.step.eq(step),
            self.request.slot.eq(slot),
        ]
        return m

    def _row_cycles(self, m: Module, header: Any, block: Value, slot: Value, step: Value) -> Value:
        """Cycles of the current non-zero against the current block."""
        sizes, shape = self.sizes, self.sizes.shape
        if not sizes.skips_both:
            return Mux(header.edge_valid & (header.edge == block), self.edge_cycles, sizes.chunks)
        m.submodules.counts = memory = Memory(shape=len(self.counts), depth=max(2, shape.parallel_slots), init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        count = Signal(sizes.count_bits)
        m.d.comb += [
            write.en.eq(self.counts_write),
            write.addr.eq(self.counts_slot),
            write.data.eq(self.counts),
            read.addr.eq(slot),
            count.eq(read.data.word_select(step, sizes.count_bits)),
        ]
        return Mux(count > shape.units_per_port, count, shape.units_per_port)
