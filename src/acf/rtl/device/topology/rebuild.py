"""The part of a topology unit that checks the new topology and writes it: tables, index, descriptors, zeros."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.utils import bits_for

from acf.rtl.device.topology.descriptor import NO_SLOT
from acf.rtl.device.topology.listing import Listing
from acf.rtl.device.topology.word_writer import WORD_BITS
from acf.rtl.device.vector.descriptor import DESCRIPTOR_BYTES
from acf.rtl.device.vector.descriptor import FIELDS as VECTOR_FIELDS

_MASK_BITS = 32


class Rebuild:
    """States from VERIFY on; every part of an index is written word by word from a flit boundary on."""

    def __init__(self, unit: Any, parts: Any) -> None:
        self.unit, self.parts = unit, parts
        self.swaps = Signal(name="by_columns")  # blocks are visited column by column: the input gradient's index
        self.count = Signal(bits_for(unit.sizes.slots), name="blocks_before")
        self.found = Signal(name="found_block")
        self.bits = Signal(_MASK_BITS, name="mask_bits")
        self.gradient = Signal(WORD_BITS, name="gradient_flit")
        self.step = Signal(bits_for(4 * unit.tile), name="zeroed_flits")

    def states(self, m: Module) -> None:
        """All of them, in order."""
        self._verify(m)
        self._write_table(m)
        self._write_offsets(m)
        self._write_slots(m)
        self._write_entries(m)
        self._write_mask(m)
        self._write_list(m)
        self._write_updates(m)
        self._zero(m)

    # What several states do.
    def _flush(self, m: Module, state: str, following: str, address: Value | None = None) -> None:
        """A state that sends the last words off; the next part begins at ``address``, or right behind."""
        writer = self.parts.writer
        with m.State(state):
            m.d.comb += writer.flush.eq(1)
            with m.If(writer.is_idle):
                if address is not None:
                    m.d.comb += [writer.set_address.eq(1), writer.address.eq(address)]
                m.d.sync += [*self.parts.home(), self.count.eq(0), self.bits.eq(0)]
                m.next = following

    def _emit(self, m: Module, word: Value | int) -> Value:
        writer = self.parts.writer
        m.d.comb += [writer.valid.eq(1), writer.word.eq(word)]
        return writer.ready

    def _ends_line(self) -> Value:
        """Whether the current block is the last of its row, or column by column of its column."""
        parts = self.parts
        return Mux(self.swaps, parts.row == parts.field("rows") - 1, parts.column == parts.field("columns") - 1)

    # The states.
    def _verify(self, m: Module) -> None:
        """Look for a row, then for a column, without a block."""
        parts, has = self.parts, Signal(name="line_has_block")
        m.d.comb += has.eq(self.found | parts.slot_valid)
        with m.State("VERIFY"):
            needed = Mux(self.swaps, parts.field("needs_columns"), parts.field("needs_rows"))
            is_last = parts.to_next_block(m, self.swaps)
            m.d.sync += self.found.eq(Mux(self._ends_line(), 0, has))
            with m.If(is_last):
                m.d.sync += [*parts.home(), self.swaps.eq(~self.swaps)]
                with m.If(self.swaps):
                    m.next = "BEGIN"
            with m.If(self._ends_line() & ~has & needed):
                m.d.comb += self.unit.failed.eq(1)
                m.d.sync += [self.swaps.eq(0), self.found.eq(0)]
                m.next = "IDLE"
        self._flush(m, "BEGIN", "TABLE", parts.field("table"))

    def _write_table(self, m: Module) -> None:
        parts = self.parts
        with m.State("TABLE"):
            taken = self._emit(m, Mux(parts.slot_valid, parts.slot, NO_SLOT))
            with m.If(taken), m.If(parts.to_next_block(m)):
                m.next = "TABLE END"
        self._flush(m, "TABLE END", "OFFSET", parts.field("forward_index"))

    def _write_offsets(self, m: Module) -> None:
        """The number of blocks before every line, and behind the last."""
        parts, over = self.parts, Signal(name="lines_are_over")
        with m.State("OFFSET"), m.If(self._emit(m, self.count)):
            m.next = "LINE"
            with m.If(over):
                m.d.sync += over.eq(0)
                m.next = "OFFSETS END"
        with m.State("LINE"):
            m.d.sync += self.count.eq(self.count + parts.slot_valid)
            with m.If(parts.to_next_block(m, self.swaps)):
                m.d.sync += over.eq(1)
            with m.If(self._ends_line()):
                m.next = "OFFSET"
        self._flush(m, "OFFSETS END", "SLOTS")

    def _write_slots(self, m: Module) -> None:
        parts = self.parts
        with m.State("SLOTS"):
            m.d.comb += [parts.writer.valid.eq(parts.slot_valid), parts.writer.word.eq(parts.slot)]
            with m.If(parts.writer.ready | ~parts.slot_valid), m.If(parts.to_next_block(m, self.swaps)):
                m.next = "SLOTS END"
        self._flush(m, "SLOTS END", "ENTRIES")

    def _write_entries(self, m: Module) -> None:
        """Of every slot the column of its block, or column by column its row, and the size byte."""
        parts = self.parts
        with m.State("ENTRIES"):
            m.d.comb += parts.block_out.addr.eq(parts.place)
            index = Signal(16, name="entry_index")
            m.d.comb += index.eq(Mux(self.swaps, parts.block_row, parts.block_column))
            with m.If(self._emit(m, Cat(index, parts.field("size")))):
                m.d.sync += parts.place.eq(parts.place + 1)
                with m.If(parts.place + 1 == parts.field("blocks")):
                    m.next = "ENTRIES END"
        with m.State("ENTRIES END"):
            m.d.sync += self.swaps.eq(~self.swaps)
            m.next = "INPUT INDEX"
            with m.If(self.swaps):
                m.next = "MASK BEGIN"
                with m.If(parts.field("group_columns") != 0):
                    m.next = "LIST BEGIN"
        self._flush(m, "INPUT INDEX", "OFFSET", parts.field("input_index"))
        self._flush(m, "MASK BEGIN", "MASK", parts.field("mask"))

    def _write_mask(self, m: Module) -> None:
        """A bit for every block, the rows in words of their own."""
        parts = self.parts
        with m.State("MASK"):
            here = parts.column[: (_MASK_BITS - 1).bit_length()]
            bits, full, goes_on = Signal(_MASK_BITS), Signal(), Signal()
            m.d.comb += [
                bits.eq(self.bits | (parts.slot_valid << here)),
                full.eq((here == _MASK_BITS - 1) | (parts.column == parts.field("columns") - 1)),
                parts.writer.valid.eq(full),
                parts.writer.word.eq(bits),
                goes_on.eq(parts.writer.ready | ~full),
            ]
            with m.If(goes_on):
                m.d.sync += self.bits.eq(Mux(full, 0, bits))
                with m.If(parts.to_next_block(m)):
                    m.next = "MASK END"
        self._flush(m, "MASK END", "GRADIENT READ")

    def _write_list(self, m: Module) -> None:
        """In place of the mask, the output tiles of a split-K weight gradient."""
        self._flush(m, "LIST BEGIN", "LIST CLEAR", self.parts.field("mask"))
        Listing(m, self.unit, self.parts, self.count).states(m, "MASK END")

    def _moved(self) -> Value:
        """The slot of the current move."""
        parts, sizes = self.parts, self.unit.sizes
        return Array(parts.dropped)[parts.place[: bits_for(sizes.moves)]]

    def _write_updates(self, m: Module) -> None:
        """Of every slot that has moved: the optimizer's descriptor, with the gradient of its new block as x or as y."""
        unit, parts, lanes = self.unit, self.parts, self.unit.flit_bits // WORD_BITS
        descriptor_flits, words = 8 * DESCRIPTOR_BYTES // unit.flit_bits, DESCRIPTOR_BYTES * 8 // WORD_BITS
        block, at = Signal(WORD_BITS, name="moved_block"), Signal(WORD_BITS, name="moved_descriptor")
        gradient_word, shift = Signal(range(words), name="gradient_word"), lanes.bit_length() - 1
        m.d.comb += [
            block.eq(parts.block_row * parts.field("columns") + parts.block_column),
            gradient_word.eq(Mux(parts.field("gradient_is_y"), VECTOR_FIELDS["y"][0], VECTOR_FIELDS["x"][0])),
            at.eq(parts.field("updates") + self._moved() * descriptor_flits + (gradient_word >> shift)),
        ]
        with m.State("GRADIENT READ"):
            m.d.comb += [unit.wanted.eq(1), unit.address.eq(parts.field("gradients") + (block >> shift))]
            with m.If(unit.granted):
                m.next = "GRADIENT FLIT"
        with m.State("GRADIENT FLIT"), m.If(unit.flit_valid):
            m.d.sync += self.gradient.eq(unit.flit.word_select(block[:shift], WORD_BITS) if shift else unit.flit)
            m.next = "DESCRIPTOR READ"
        with m.State("DESCRIPTOR READ"):
            m.d.comb += [unit.wanted.eq(1), unit.address.eq(at)]
            with m.If(unit.granted):
                m.next = "DESCRIPTOR FLIT"
        with m.State("DESCRIPTOR FLIT"):
            m.d.comb += [parts.writer.set_address.eq(1), parts.writer.address.eq(at)]
            m.d.sync += parts.lane.eq(0)
            with m.If(unit.flit_valid):
                m.d.sync += parts.held.eq(unit.flit)
                m.next = "DESCRIPTOR WORD"
        with m.State("DESCRIPTOR WORD"):
            word = parts.held.word_select(parts.lane, WORD_BITS)
            with m.If(self._emit(m, Mux(parts.lane == gradient_word[:shift], self.gradient, word))):
                m.d.sync += parts.lane.eq(parts.lane + 1)
                with m.If(parts.lane == lanes - 1):
                    m.next = "SENT"
        with m.State("SENT"), m.If(parts.writer.is_idle):
            m.d.sync += [self.step.eq(0), parts.part.eq(0), parts.lane.eq(0)]
            m.next = "ZERO BEGIN"

    def _zero(self, m: Module) -> None:
        """Weight, float32 weight and moments of a slot that has moved."""
        parts, lanes, tile = self.parts, self.unit.flit_bits // WORD_BITS, self.unit.tile
        bases = Array(parts.field(name) for name in ("weight", "master", "moments"))
        flits = Signal(bits_for(4 * tile), name="flits_of_slot")
        has_two = (parts.part == 2) & parts.field("two_moments")
        m.d.comb += flits.eq(Mux(parts.part == 0, tile, Mux(has_two, 4 * tile, 2 * tile)))
        with m.State("ZERO BEGIN"), m.If(parts.writer.is_idle):
            m.d.comb += [
                parts.writer.set_address.eq(1),
                parts.writer.address.eq(bases[parts.part[:2]] + self._moved() * flits),
            ]
            m.d.sync += self.step.eq(0)
            m.next = "ZERO"
        with m.State("ZERO"), m.If(self._emit(m, 0)):
            m.d.sync += parts.lane.eq(Mux(parts.lane == lanes - 1, 0, parts.lane + 1))
            with m.If(parts.lane == lanes - 1):
                m.d.sync += self.step.eq(self.step + 1)
                with m.If(self.step + 1 == flits):
                    m.d.sync += parts.part.eq(parts.part + 1)
                    m.next = "ZERO BEGIN"
                    with m.If(parts.part == 2):
                        m.next = "NEXT MOVE"
        with m.State("NEXT MOVE"), m.If(parts.writer.is_idle):
            m.d.sync += parts.place.eq(parts.place + 1)
            m.next = "GRADIENT READ"
            with m.If(parts.place + 1 == parts.field("moves")):
                m.next = "IDLE"
