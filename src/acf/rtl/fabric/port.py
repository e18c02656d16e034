"""A read port of a cluster's stores: its units take turns, and each turn fetches a value and a row of a block."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.fabric.bits import count_ones, delayed
from acf.rtl.fabric.sizes import FabricSizes


class StorePort(Component):
    """Stores of queued pieces and of blocks, and the pipeline that unpacks one value and one row in every cycle.

    Unit ``i`` of the port has the cycles ``i`` modulo ``units_per_port``; its request waits for at most that long,
    and never for longer, since a unit asks no sooner again. ``FETCH_CYCLES`` after its turn the row is in its buffer.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        shape = sizes.shape
        members: dict[str, In | Out] = {
            "asks": In(shape.units_per_port),
            "requests": In(data.ArrayLayout(sizes.request, shape.units_per_port)),
            "fetched_valid": Out(shape.units_per_port),
            "fetched": Out(sizes.fetched),
        }
        for name, places in (("serial", shape.queue_packets), ("parallel", shape.parallel_slots)):
            members |= {
                f"{name}_write": In(1),
                f"{name}_word": In(bits_for(places * sizes.piece_flits - 1)),
                f"{name}_data": In(sizes.flit_bits),
                f"{name}_whole": In(1),
                f"{name}_place": In(bits_for(places - 1)),
                f"{name}_packed": In(1),
                f"{name}_pattern": In(sizes.piece_values),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Turn; pattern; address; words; row."""
        m, sizes, shape = Module(), self.sizes, self.sizes.shape
        chosen, chosen_unit = self._turn(m)
        tile = shape.tile
        serial_pattern, serial_packed = self._patterns(m, "serial", shape.queue_packets, chosen.place)
        block_pattern, block_packed = self._patterns(m, "parallel", shape.parallel_slots, chosen.slot)
        asked = delayed(m, chosen, 1, "asked")
        # Which value of the piece: its number among the non-zeros where the piece is packed.
        serial_index = Signal(range(sizes.piece_values))
        m.d.comb += serial_index.eq(asked.row * tile + asked.step)
        serial_at = self._start(m, serial_pattern, serial_packed, serial_index, "serial")
        block_index = Signal(range(sizes.piece_values))
        m.d.comb += block_index.eq(asked.step * tile)
        block_at = self._start(m, block_pattern, block_packed, block_index, "block")
        mask = Signal(tile)
        row_pattern = block_pattern.word_select(asked.step, tile)
        m.d.sync += mask.eq(row_pattern if sizes.skips_both else Mux(block_packed, row_pattern, ~0))
        located = delayed(m, asked, 1, "located")
        value = self._value(m, located, serial_at)
        aligned = self._aligned(m, located, block_at)
        mask_of_row = delayed(m, mask, 2, "mask_of_row")
        m.d.comb += [
            self.fetched.row.eq(aligned if sizes.skips_both else _expanded(aligned, mask_of_row, tile)),
            self.fetched.mask.eq(mask_of_row),
            self.fetched.packed.eq(delayed(m, block_packed, 3, "packed")),
            self.fetched.value.eq(value),
            self.fetched_valid.eq(delayed(m, chosen_unit, 4, "unit")),
        ]
        return m

    def _turn(self, m: Module) -> tuple[data.View, Signal]:
        """The request whose turn it is, and whose it is, one bit per unit."""
        shape = self.sizes.shape
        units = shape.units_per_port
        turn = Signal(range(max(2, units)))
        m.d.sync += turn.eq(Mux(turn == units - 1, 0, turn + 1))
        waiting = Signal(units)
        kept = [Signal(self.sizes.request, name=f"request_{unit}") for unit in range(units)]
        chosen, chosen_unit = Signal(self.sizes.request), Signal(units)
        for unit in range(units):
            with m.If(turn == unit):
                m.d.comb += [chosen.eq(kept[unit]), chosen_unit[unit].eq(waiting[unit])]
                m.d.sync += waiting[unit].eq(0)
            with m.If(self.asks[unit]):
                m.d.sync += [kept[unit].eq(self.requests[unit]), waiting[unit].eq(1)]
        return chosen, chosen_unit

    def _patterns(self, m: Module, name: str, places: int, place: Value) -> tuple[Value, Value]:
        """Pattern of a piece and whether it is packed, a cycle after ``place``."""
        values = self.sizes.piece_values
        m.submodules[f"{name}_patterns"] = memory = Memory(shape=values + 1, depth=max(2, places), init=[])
        write, read = memory.write_port(), memory.read_port()
        m.d.comb += [
            write.en.eq(getattr(self, f"{name}_whole")),
            write.addr.eq(getattr(self, f"{name}_place")),
            write.data.eq(Cat(getattr(self, f"{name}_pattern"), getattr(self, f"{name}_packed"))),
            read.addr.eq(place),
        ]
        return read.data[:values], read.data[values]

    def _start(self, m: Module, pattern: Value, packed: Value, index: Value, name: str) -> Signal:
        """Where in its piece value ``index`` lies, counted in values, a cycle later."""
        sizes = self.sizes
        before = Signal(sizes.piece_values, name=f"{name}_before")
        at = Signal(range(sizes.piece_values + sizes.pattern_values), name=f"{name}_at")
        m.d.comb += before.eq(pattern & ((1 << index) - 1)[: sizes.piece_values])
        m.d.sync += at.eq(Mux(packed, sizes.pattern_values + count_ones(before), index))
        return at

    def _value(self, m: Module, located: data.View, at: Signal) -> Signal:
        """The value, two cycles after its place is known."""
        sizes = self.sizes
        depth = sizes.shape.queue_packets * sizes.piece_flits
        m.submodules.serial_store = memory = Memory(shape=sizes.flit_bits, depth=max(2, depth), init=[])
        write, read = memory.write_port(), memory.read_port()
        value = Signal(16)
        lane_bits = bits_for(sizes.flit_values - 1)
        m.d.comb += [
            write.en.eq(self.serial_write),
            write.addr.eq(self.serial_word),
            write.data.eq(self.serial_data),
            read.addr.eq(located.place * sizes.piece_flits + at[lane_bits:]),
        ]
        lane = delayed(m, at[:lane_bits], 1, "lane_of_value")
        m.d.sync += value.eq(read.data.word_select(lane, 16))
        return value

    def _aligned(self, m: Module, located: data.View, at: Signal) -> Signal:
        """``tile`` values from the place on, two cycles after it is known; they may lie in two words.

        What is read beyond the end of a piece is masked later, so the address may wrap.
        """
        sizes = self.sizes
        depth = sizes.shape.parallel_slots * sizes.piece_flits
        lane_bits = bits_for(sizes.flit_values - 1)
        word = Signal(range(depth + 1))
        m.d.comb += word.eq(located.slot * sizes.piece_flits + at[lane_bits:])
        words = []
        for odd in (0, 1):
            m.submodules[f"block_store_{odd}"] = memory = Memory(
                shape=sizes.flit_bits, depth=max(2, -(-depth // 2)), init=[]
            )
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [
                write.en.eq(self.parallel_write & (self.parallel_word[0] == odd)),
                write.addr.eq(self.parallel_word[1:]),
                write.data.eq(self.parallel_data),
                read.addr.eq((word + 1 - odd) >> 1),
            ]
            words.append(read.data)
        is_odd, lane = delayed(m, word[0], 1, "is_odd"), delayed(m, at[:lane_bits], 1, "lane_of_row")
        both = Mux(is_odd, Cat(words[1], words[0]), Cat(words[0], words[1]))
        aligned = Signal(16 * sizes.shape.tile)
        m.d.sync += aligned.eq(both.bit_select(lane << 4, 16 * sizes.shape.tile))
        return aligned


def _expanded(packed: Value, mask: Value, tile: int) -> Value:
    """Values in their columns: the n-th of ``packed`` where the n-th bit of ``mask`` is set, else zero."""
    columns = []
    for column in range(tile):
        if column == 0:
            value = packed[:16]
        else:
            before = count_ones(mask[:column])
            value = packed[: 16 * (column + 1)].word_select(before, 16)
        columns.append(value & mask[column].replicate(16))
    return Cat(*columns)
