"""Fetches commands and operands for the controllers of one master, round-robin, through one burst reader."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.errors import RtlError
from acf.rtl.design.axi.reader import BurstReader
from acf.rtl.design.axi.signatures import axi4_read
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.controller import COUNT_BITS
from acf.rtl.design.fabric.memory_port import memory_port
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.fifo import BoundedFifo
from acf.rtl.design.primitives.round_robin import after, first_from, index_of, select
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.design.primitives.wires import forward
from acf.rtl.device.transposer import TileTransposer

CHUNK_BYTES = 512
"""The most bytes of commands in one transfer."""


class Slots:
    """Beats of a flit and of a command of either kind in memory: powers of two, so that they are aligned."""

    def __init__(self, sizes: FabricSizes, spec: AxiSpec) -> None:
        shape = sizes.shape
        if shape.mesh_rows % spec.masters or shape.mesh_columns % spec.masters:
            raise RtlError(
                f"masters {spec.masters} must divide the {shape.mesh_rows} mesh rows and the {shape.mesh_columns} mesh "
                "columns, of which each master serves as many; use a common divisor"
            )
        if spec.data_bits > sizes.flit_bits:
            raise RtlError(
                f"a bus of {spec.data_bits} bits is wider than the {sizes.flit_bits} bits of a flit, of which a line "
                "takes one a cycle; use a bus of that width or less"
            )
        self.flit = sizes.flit_bits // spec.data_bits
        self.row = _slot_beats(sizes.command(shape.mesh_columns, serial=True).size, spec)
        self.column = _slot_beats(sizes.command(shape.mesh_rows, serial=False).size, spec)
        self.row_chunk, self.column_chunk = (
            max(1, min(sizes.command_depth // 2, CHUNK_BYTES // (beats * spec.beat_bytes)))
            for beats in (self.row, self.column)
        )
        self.most_beats = max(sizes.tile_flits * self.flit, self.row_chunk * self.row, self.column_chunk * self.column)


class Fetcher(Component):
    """Reads the packets that each line of a master requests, and its commands as far as its command memory has room.

    Lines are numbered within the master, mesh rows first. Requests of all of them, for packets and for commands, are
    served round-robin. ``start`` latches ``counts`` and ``command_pages``; it fetches while ``enable`` is 1. ``first``
    of a memory port comes with a packet's last flit, when the packet is complete.
    """

    def __init__(self, sizes: FabricSizes, spec: AxiSpec, command_bits: int) -> None:
        self.sizes, self.spec, self.command_bits = sizes, spec, command_bits
        shape = sizes.shape
        self.rows = shape.mesh_rows // spec.masters
        self.lines = lines = self.rows + shape.mesh_columns // spec.masters
        self.slots = Slots(sizes, spec)
        self.page_bits = spec.address_bits - (PAGE_BYTES - 1).bit_length()
        pages = data.ArrayLayout(self.page_bits, lines)
        super().__init__(
            {
                "start": In(1),
                "enable": In(1),
                "counts": In(data.ArrayLayout(COUNT_BITS, lines)),
                "command_pages": In(pages),
                "data_pages": In(pages),
                "memories": In(memory_port(sizes)).array(lines),
                "takes": In(lines),
                "load": Out(lines),
                "load_word": Out(command_bits),
                "beat_valid": Out(1),
                "operand_failed": Out(1),
                "command_failed": Out(1),
                "is_idle": Out(1),
                "bus": Out(axi4_read(spec)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Requests, a round-robin arbiter, the reader, and the assembly of beats to words."""
        m, spec, slots = Module(), self.spec, self.slots
        m.submodules.reader = reader = BurstReader(spec, bits_for(slots.most_beats), bits_for(self.lines - 1) + 2)
        forward(m, self, reader, ["bus"])
        packets, commands = self._packets(m), self._commands(m)
        turn, wants = Signal(range(2 * self.lines)), Signal(2 * self.lines)
        m.d.comb += wants.eq(Cat(*(want.wanted for want in (*packets, *commands))))
        chosen = first_from(m, wants, turn, "chosen")
        asked, takes = Signal(), Signal()
        m.d.comb += takes.eq(self.enable & wants.any() & (~asked | reader.ready))
        for want, mine in zip((*packets, *commands), chosen, strict=True):
            m.d.comb += want.granted.eq(mine & takes)
        m.d.comb += reader.valid.eq(asked)
        with m.If(takes):
            all_wants = [*packets, *commands]
            line = index_of(chosen[: self.lines] | chosen[self.lines :])
            m.d.sync += [
                asked.eq(1),
                turn.eq(after(chosen)),
                reader.address.eq(
                    (select(chosen, [want.page for want in all_wants]) << (spec.page_beats.bit_length() - 1))
                    + select(chosen, [want.beat for want in all_wants])
                ),
                reader.beats.eq(select(chosen, [want.beats for want in all_wants])),
                reader.tag.eq(
                    Cat(
                        line[: len(reader.tag) - 2],
                        chosen[self.lines :].any(),
                        select(chosen, [want.transposed for want in all_wants]),
                    )
                ),
            ]
        with m.Elif(reader.ready):
            m.d.sync += asked.eq(0)
        m.d.comb += self.is_idle.eq(reader.is_idle & ~asked)
        self._put_together(m, reader)
        return m

    def _packets(self, m: Module) -> list["_Want"]:
        """For every line, the oldest packet requested and not yet fetched."""
        address_bits, flit_bits = len(self.memories[0].address), len(self.memories[0].flits)
        wants = []
        for line in range(self.lines):
            fifo = BoundedFifo(address_bits + flit_bits + 1, self.sizes.shape.prefetch_packets)
            place(m, f"asks_{line}", fifo, "ask_queue")
            want = _Want(self, f"packet_{line}")
            m.d.comb += [
                fifo.write_valid.eq(self.memories[line].ask),
                fifo.write_data.eq(
                    Cat(self.memories[line].address, self.memories[line].flits, self.memories[line].transposed)
                ),
                fifo.read_ready.eq(want.granted),
                want.wanted.eq(fifo.read_valid),
                want.page.eq(self.data_pages[line]),
                want.beat.eq(fifo.read_data[:address_bits] * self.slots.flit),
                want.beats.eq(fifo.read_data[address_bits:-1] * self.slots.flit),
                want.transposed.eq(fifo.read_data[-1]),
            ]
            wants.append(want)
        return wants

    def _commands(self, m: Module) -> list["_Want"]:
        """For every line, its next commands, once the command memory has room for a whole transfer."""
        depth = self.sizes.command_depth
        wants = []
        for line in range(self.lines):
            is_row = line < self.rows
            slot = self.slots.row if is_row else self.slots.column
            chunk = self.slots.row_chunk if is_row else self.slots.column_chunk
            left, space = Signal(COUNT_BITS, name=f"left_{line}"), Signal(range(depth + 1), name=f"space_{line}")
            done, number = Signal(COUNT_BITS, name=f"done_{line}"), Signal(range(chunk + 1), name=f"number_{line}")
            want = _Want(self, f"command_{line}")
            m.d.comb += [
                number.eq(Mux(left < chunk, left, chunk)),
                want.wanted.eq((left != 0) & (space >= number)),
                want.page.eq(self.command_pages[line]),
                want.beat.eq(done * slot),
                want.beats.eq(number * slot),
            ]
            with m.If(self.start):
                m.d.sync += [left.eq(self.counts[line]), space.eq(depth), done.eq(0)]
            with m.Else():
                fetched = Mux(want.granted, number, 0)
                m.d.sync += [
                    left.eq(left - fetched),
                    done.eq(done + fetched),
                    space.eq(space + self.takes[line] - fetched),
                ]
            wants.append(want)
        return wants

    def _put_together(self, m: Module, reader: BurstReader) -> None:
        """Shift beats into words; a line gets its word a cycle after the last beat.

        A tile to be transposed comes out of the transposer instead, while the reader is stalled.
        """
        spec, slots, rows = self.spec, self.slots, self.rows
        width = spec.data_bits * max(slots.flit, slots.row, slots.column)
        word = Signal(width)
        line, is_command, is_transposed = reader.beat_tag[:-2], reader.beat_tag[-2], reader.beat_tag[-1]
        m.submodules.transposer = transposer = TileTransposer(self.sizes)
        complete, transposed_line = Cat(word, reader.beat)[spec.data_bits :], Signal.like(line)
        beat, beats = Signal(range(width // spec.data_bits)), Signal(range(width // spec.data_bits + 1))
        ends = Signal()
        m.d.comb += [
            beats.eq(Mux(is_command, Mux(line < rows, slots.row, slots.column), slots.flit)),
            ends.eq(reader.beat_valid & (beat == beats - 1)),
            self.beat_valid.eq(reader.beat_valid),
            self.operand_failed.eq(reader.failed & ~is_command),
            self.command_failed.eq(reader.failed & is_command),
            transposer.valid.eq(ends & is_transposed),
            transposer.flit.eq(complete[-self.sizes.flit_bits :]),
            reader.stall.eq(transposer.busy),
        ]
        with m.If(reader.beat_valid):
            m.d.sync += [word.eq(complete), beat.eq(Mux(ends, 0, beat + 1)), transposed_line.eq(line)]
        with m.Elif(transposer.busy):
            m.d.sync += word[-self.sizes.flit_bits :].eq(transposer.transposed)
        was_row = Signal()
        m.d.sync += was_row.eq(line < rows)
        for index, port in enumerate(self.memories):
            mine = ends & (line == index)
            direct, turned = mine & ~is_command & ~is_transposed, transposer.busy & (transposed_line == index)
            m.d.sync += [
                port.valid.eq(direct | turned),
                port.first.eq((direct & reader.beat_last) | (turned & transposer.last)),
                self.load[index].eq(mine & is_command),
            ]
            m.d.comb += [port.data.eq(word[-self.sizes.flit_bits :]), port.outside.eq(1)]
        row_word, column_word = word[-slots.row * spec.data_bits :], word[-slots.column * spec.data_bits :]
        m.d.comb += self.load_word.eq(Mux(was_row, row_word, column_word))


class _Want:
    """A request for a transfer: ``beats`` beats from beat ``beat`` of page ``page`` on."""

    def __init__(self, fetcher: Fetcher, name: str) -> None:
        self.wanted, self.granted = Signal(name=f"{name}_wanted"), Signal(name=f"{name}_granted")
        self.page = Signal(fetcher.page_bits, name=f"{name}_page")
        self.beat = Signal(fetcher.spec.beat_address_bits, name=f"{name}_beat")
        self.beats = Signal(bits_for(fetcher.slots.most_beats), name=f"{name}_beats")
        self.transposed = Signal(name=f"{name}_transposed")


def _slot_beats(bits: int, spec: AxiSpec) -> int:
    return 1 << (-(-bits // spec.data_bits) - 1).bit_length()
