"""A time-multiplexed read port of a cluster's tile stores: each turn fetches a value and a row of a block."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import (
    ALWAYS,
    below,
    chosen_word,
    count_ones,
    delayed,
    delayed_when,
    masked,
    word_of,
)
from acf.rtl.design.primitives.popcount import CountOnes
from acf.rtl.design.primitives.shared_modules import place

VALUE_GROUP = 4
"""Values that are chosen from a flit at once; of them, one after the other is used."""


class StorePort(Component):
    """Stores of queued tiles and of blocks, and the pipeline that unpacks one value and one row in every cycle.

    SCU ``i`` of the port has the cycles ``i`` modulo ``scus_per_port`` (``turns``). In its turn it gets, as
    ``last_cycle``, the number of the last cycle of the pair that it requests; ``FETCH_CYCLES`` later the row is in its
    buffer. An SCU holds a request for at least one turn, so none is missed; idle SCUs are served too, without effect.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.sizes = sizes
        shape = sizes.shape
        members: dict[str, In | Out] = {
            "requests": In(data.ArrayLayout(sizes.request, shape.scus_per_port)),
            "turns": Out(shape.scus_per_port),
            "last_cycle": Out(bits_for(sizes.chunks - 1)),
            "fetched_valid": Out(shape.scus_per_port),
            "fetched": Out(sizes.fetched),
        }
        if sizes.holds_sums:
            members["fetched_fresh"] = Out(shape.scus_per_port)
        for name, places in (("serial", shape.queue_packets), ("parallel", shape.parallel_slots)):
            members |= {
                f"{name}_write": In(1),
                f"{name}_word": In(bits_for(places * sizes.tile_flits - 1)),
                f"{name}_data": In(sizes.flit_bits),
                f"{name}_whole": In(1),
                f"{name}_place": In(bits_for(places - 1)),
                f"{name}_packed": In(1),
                f"{name}_bitmap": In(sizes.tile_values),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Four stages: read bitmaps, count to addresses, read words, align the row."""
        m, sizes, shape = Module(), self.sizes, self.sizes.shape
        tile = shape.tile
        chosen = self._turn(m)
        serial_bitmap, serial_packed = self._bitmaps(m, "serial", shape.queue_packets, chosen.place)
        block_bitmap, block_packed = self._bitmaps(m, "parallel", shape.parallel_slots, chosen.slot)
        asked = self._kept(m, chosen, "asked")
        opens, fresh = self._held_stages(m, chosen)
        kept_block = delayed_when(m, block_bitmap, [opens], "block")
        kept_packed = delayed_when(m, block_packed, [opens], "packing")
        kept_serial = delayed_when(m, serial_bitmap, [opens], "tile")
        serial_is_packed = delayed_when(m, serial_packed, [opens], "packed")
        row_k = delayed_when(m, chosen.k, fresh[:1], "row_k")
        mask = self._mask(m, chosen, row_k, (block_bitmap, block_packed), (kept_block, kept_packed), fresh)
        value_start = self._start(m, kept_serial, serial_is_packed, asked.row, asked.k, "value")
        row_start = self._start(m, kept_block, kept_packed, row_k, None, "row")
        serial_at, block_at = delayed(m, value_start, 1, "value_at"), delayed_when(m, row_start, fresh[1:2], "row_at")
        located = self._kept(m, asked, "located")
        row = self._row(m, located, block_at, fresh)
        last = 3 if sizes.holds_sums else 4  # where the row is there a cycle earlier
        lane_of_row = delayed_when(m, block_at[: bits_for(sizes.flit_values - 1)], fresh[2:last], "lane_of_row")
        row_is_packed = delayed_when(m, kept_packed, fresh[1:last], "packed_row")
        if sizes.holds_sums:  # a row of all values begins at its place: it passes nothing that would switch
            unpacked = masked(row, row_is_packed)
            row = Mux(row_is_packed, _expanded(_rotated(unpacked, lane_of_row, tile), mask, tile), row)
        elif not sizes.skips_both:
            row = _expanded(_rotated(row, lane_of_row, tile), mask, tile)
        m.d.comb += [
            self.fetched.row.eq(row),
            self.fetched.first.eq(lane_of_row),
            self.fetched.mask.eq(mask),
            self.fetched.packed.eq(row_is_packed),
            self.fetched.value.eq(self._value(m, located, serial_at)),
        ]
        if not sizes.holds_sums or shape.scus_per_port > 1:  # an SCU with its own port needs no word that it is served
            m.d.comb += self.fetched_valid.eq(delayed(m, self._served(chosen), 4, "scu"))
        if sizes.holds_sums:
            m.d.comb += self.fetched_fresh.eq(delayed(m, masked(self.turns, fresh[0]), 3, "fetched_fresh"))
        return m

    def _held_stages(self, m: Module, chosen: data.View) -> tuple[Value, list[Value]]:
        """Whether bitmaps are loaded, and whether each of the stages loads what belongs to the row of a block.

        Where SCUs hold rows, both are only loaded when an SCU asks for others. An SCU holds no bitmap, so a port that
        several SCUs share loads bitmaps for every one of them.
        """
        if not self.sizes.holds_sums:
            return ALWAYS, [ALWAYS] * 4
        fresh = [chosen.valid & chosen.fresh]
        for stage in range(3):
            fresh.append(delayed(m, fresh[-1], 1, f"fresh_{stage}"))
        is_shared = self.sizes.shape.scus_per_port > 1
        return chosen.valid & (is_shared | chosen.opens), fresh

    def _kept(self, m: Module, request: data.View, name: str) -> data.View:
        """A request a cycle later; one that an SCU's own port gets names tile and block with its first value alone."""
        stage = delayed(m, request, 1, name)
        if not self.sizes.holds_sums or self.sizes.shape.scus_per_port > 1:
            return stage
        stage = Signal(self.sizes.request, name=name, reset_less=True)
        for field, _ in self.sizes.request:
            if field not in ("place", "slot"):
                m.d.sync += stage[field].eq(request[field])
        with m.If(request.opens):
            m.d.sync += [stage.place.eq(request.place), stage.slot.eq(request.slot)]
        return stage

    def _served(self, chosen: data.View) -> Value:
        """The SCU that gets an answer; where SCUs hold rows, only one that asks."""
        return masked(self.turns, chosen.valid) if self.sizes.holds_sums else self.turns

    def _mask(
        self,
        m: Module,
        chosen: data.View,
        row_k: Value,
        read: tuple[Value, Value],
        kept: tuple[Value, Value],
        fresh: list[Value],
    ) -> Value:
        """Columns of the values in the row of the block, four cycles after the request; and the length of the pair."""
        sizes, tile = self.sizes, self.sizes.shape.tile
        row_bitmap = Signal(tile)
        if sizes.holds_sums:
            m.d.comb += row_bitmap.eq(word_of(kept[0], masked(row_k, kept[1]), tile))
            return delayed_when(m, Mux(kept[1], row_bitmap, ~0), fresh[1:3], "mask")
        m.d.comb += row_bitmap.eq(word_of(read[0], chosen.k, tile))
        count, least = count_ones(row_bitmap), sizes.shape.scus_per_port
        m.d.comb += self.last_cycle.eq(Mux(count > least, count - 1, least - 1))
        return delayed(m, row_bitmap if sizes.skips_both else Mux(read[1], row_bitmap, ~0), 4, "mask")

    def _turn(self, m: Module) -> data.View:
        """The request of the SCU whose turn it is."""
        scus = self.sizes.shape.scus_per_port
        turn, chosen = Signal(range(max(2, scus))), Signal(self.sizes.request)
        m.d.sync += turn.eq(Mux(turn == scus - 1, 0, turn + 1))
        for scu in range(scus):
            m.d.comb += self.turns[scu].eq(turn == scu)
        m.d.comb += chosen.eq(self.requests[turn] if scus > 1 else self.requests[0])
        return chosen

    def _bitmaps(self, m: Module, name: str, places: int, place: Value) -> tuple[Value, Value]:
        """Bitmap of a tile and whether it is packed."""
        values = self.sizes.tile_values
        m.submodules[f"{name}_bitmaps"] = memory = Memory(shape=values + 1, depth=max(2, places), init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(getattr(self, f"{name}_whole")),
            write.addr.eq(getattr(self, f"{name}_place")),
            write.data.eq(Cat(getattr(self, f"{name}_bitmap"), getattr(self, f"{name}_packed"))),
            read.addr.eq(place),
        ]
        return read.data[:values], read.data[values]

    def _start(self, m: Module, bitmap: Value, packed: Value, row: Value, k: Value | None, name: str) -> Signal:
        """Offset in its stored tile of the value at ``k`` of a row, or of the row's first value.

        In a packed tile it is the size of its head plus the number of non-zeros before it.
        """
        sizes, tile = self.sizes, self.sizes.shape.tile
        counter = CountOnes(m, name)
        # A count that is not used does not switch.
        counted = [masked(each, packed) if sizes.holds_sums else each for each in (row, Const(0) if k is None else k)]
        rows_before = below(counted[0], tile)
        for index in range(tile - 1):
            counter.add(bitmap[index * tile : (index + 1) * tile], rows_before[index])
        if k is not None:
            counter.add(word_of(bitmap, counted[0], tile) & below(counted[1], tile))
        start = Signal(range(sizes.tile_values + sizes.head_values), name=f"{name}_start")
        index = Cat(Const(0, bits_for(tile - 1)) if k is None else k, row)
        m.d.comb += start.eq(Mux(packed, sizes.head_values + counter.total(), index))
        return start

    def _value(self, m: Module, located: data.View, at: Value) -> Signal:
        """The value, two cycles after its offset is known."""
        sizes = self.sizes
        depth = sizes.shape.queue_packets * sizes.tile_flits
        m.submodules.serial_store = memory = Memory(shape=sizes.flit_bits, depth=max(2, depth), init=[])
        write, read = memory.write_port(), memory.read_port()
        value = Signal(16)
        lane_bits = bits_for(sizes.flit_values - 1)
        m.d.comb += [
            write.en.eq(self.serial_write),
            write.addr.eq(self.serial_word),
            write.data.eq(self.serial_data),
            read.addr.eq(Cat(at[lane_bits:][: sizes.flit_number_bits], located.place)),
            read.en.eq(located.valid if sizes.holds_sums else 1),
        ]
        lane = delayed(m, at[:lane_bits], 1, "lane_of_value")
        if sizes.holds_sums:
            m.d.sync += value.eq(self._next_value(m, read.data, lane))
        else:
            m.d.sync += value.eq(word_of(read.data, lane, 16))
        return value

    def _next_value(self, m: Module, flit: Value, number: Value) -> Value:
        """Value ``number`` of a flit: a group of values first, which changes seldom, for values of a row follow."""
        words = self.sizes.flit_values // VALUE_GROUP
        group = place(m, "value_group", WordChoice(words, 16 * VALUE_GROUP), "value_group")
        last = place(m, "group_value", WordChoice(VALUE_GROUP, 16), "group_value")
        m.d.comb += [
            group.words.eq(flit),
            group.number.eq(number[bits_for(VALUE_GROUP - 1) :]),
            last.words.eq(group.word),
            last.number.eq(number),
        ]
        return last.word

    def _row(self, m: Module, located: data.View, at: Value, fresh: list[Value]) -> Value:
        """``tile`` values from an offset on, two cycles after it is known.

        Each lane of the flits is a memory of its own, and the lanes before the offset read the following flit. So value
        ``n`` of the tile comes out at place ``n`` modulo ``tile``; values beyond the end of the tile are masked later.
        An SCU that holds a block has registers for rows: the row is there a cycle earlier.
        """
        sizes, tile = self.sizes, self.sizes.shape.tile
        depth = sizes.shape.parallel_slots * sizes.tile_flits
        lane_bits, number_bits = bits_for(sizes.flit_values - 1), sizes.flit_number_bits
        lane, flit, following = at[:lane_bits], at[lane_bits:][:number_bits], Signal(number_bits)
        m.d.comb += following.eq(flit + 1)
        takes_following = below(lane, sizes.flit_values)
        values = []
        for index in range(sizes.flit_values):
            m.submodules[f"block_store_{index}"] = memory = Memory(shape=16, depth=max(2, depth), init=[])
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [
                write.en.eq(self.parallel_write),
                write.addr.eq(self.parallel_word),
                write.data.eq(self.parallel_data[16 * index : 16 * index + 16]),
                read.addr.eq(Cat(Mux(takes_following[index], following, flit), located.slot)),
                read.en.eq(fresh[2]),
            ]
            values.append(read.data)
        # Of the lanes that are a tile apart, one holds the value of the row.
        came = delayed_when(m, lane, fresh[2:3], "lane_of_words")
        chosen, bits = Signal(16 * tile), bits_for(tile - 1)
        came_before = below(came[:bits], tile)
        for column in range(tile):
            lanes = Cat(*values[column::tile])
            part = (came[bits:] + came_before[column])[: len(came) - bits]
            m.d.comb += chosen[16 * column : 16 * column + 16].eq(word_of(lanes, part, 16))
        return chosen if sizes.holds_sums else delayed_when(m, chosen, fresh[3:], "row")


class WordChoice(Component):
    """Word ``number`` of ``words`` words, ``width`` bits each."""

    def __init__(self, words: int, width: int) -> None:
        self.width = width
        super().__init__({"words": In(words * width), "number": In(bits_for(words - 1)), "word": Out(width)})

    def elaborate(self, platform: object) -> Module:
        """A tree of multiplexers."""
        m = Module()
        words = [self.words[start : start + self.width] for start in range(0, len(self.words), self.width)]
        m.d.comb += self.word.eq(chosen_word(words, self.number))
        return m


def _rotated(row: Value, first: Value, tile: int) -> Value:
    """The row rotated to begin at place ``first``."""
    return Cat(row, row).bit_select(first[: bits_for(tile - 1)] << 4, 16 * tile)


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
