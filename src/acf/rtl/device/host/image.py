"""A program as a device reads it from memory, and its results as the device writes them there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.controller import COUNT_BITS
from acf.rtl.design.fabric.decoding import (
    assemble_added,
    assemble_output,
    chain_flits,
    result_values,
    stream_flits,
    sum_values,
)
from acf.rtl.design.fabric.encoding import EncodedProgram
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.fetcher import Slots
from acf.rtl.device.registers import REGISTERS
from acf.sim.fabric.memory_ports import lines_of_masters

START, REDUCES, INTERRUPTS = 1, 2, 4
"""Bits of the register `control`."""


@dataclass(frozen=True, eq=False)
class LineWords:
    """By line: command words, flits, and the flits of each of its result streams; ``settings``: other registers."""

    commands: Sequence[Sequence[int]]
    flits: Sequence[Sequence[int]]
    streams: Sequence[Sequence[int]]
    settings: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Segment:
    """What one master reads and writes, addresses in bytes: ``content`` from ``base`` on, results up to ``end``."""

    base: int
    content: bytes
    end: int

    @property
    def results(self) -> int:
        """The first byte of the results."""
        return self.base + len(self.content)


@dataclass(frozen=True, eq=False)
class MemoryImage:
    """``segments``: by master. ``streams``: address in bytes and flits of every result stream, in order of lines.

    ``registers`` are (offset, value) to write in this order; the last write starts the program.
    """

    segments: Sequence[Segment]
    streams: Sequence[tuple[int, int]]
    registers: Sequence[tuple[int, int]]

    @property
    def end(self) -> int:
        """The byte behind the last of all masters."""
        return max(segment.end for segment in self.segments)


def lay_out(
    encoded: EncodedProgram,
    axi: AxiSpec,
    base: int = 0,
    channel_bytes: int | None = None,
    interrupts: bool = False,
) -> MemoryImage:
    """The image of a program from byte ``base`` on: for every line its commands and flits, then its results.

    A master's part begins ``channel_bytes`` after that of the master before; without it, right behind. Raises
    `RtlError` where ``base`` is not a page's first byte, or the program is more than the device can address.
    """
    return lay_out_lines(line_words(encoded, interrupts), encoded.sizes, axi, base, channel_bytes)


def line_words(encoded: EncodedProgram, interrupts: bool = False) -> LineWords:
    """The words, result streams and settings of a program."""
    program, shape = encoded.program, encoded.sizes.shape
    control = START | REDUCES * program.reduces | INTERRUPTS * interrupts
    streams: list[list[int]] = [[] for _ in encoded.commands]
    if program.reduces:
        added = chain_flits(encoded)
        streams[len(streams) - len(added) :] = [[flits] for flits in added]  # the last group writes the sums of all
    else:
        flits, columns = stream_flits(encoded), shape.mesh_columns
        streams[: shape.mesh_rows] = [flits[row * columns : (row + 1) * columns] for row in range(shape.mesh_rows)]
    settings = {"edge_cycles": encoded.edge_cycles, "column_groups": program.split, "control": control}
    return LineWords(encoded.commands, encoded.flits, streams, settings)


def lay_out_lines(
    words: LineWords, sizes: FabricSizes, axi: AxiSpec, base: int = 0, channel_bytes: int | None = None
) -> MemoryImage:
    """The image of commands and flits by line, see `lay_out`; ``settings`` are written last."""
    if base % PAGE_BYTES:
        raise RtlError(f"base {base:#x} is not a multiple of {PAGE_BYTES}, where pages begin; give one that is")
    most = max((flits for streams in words.streams for flits in streams), default=0)
    stride = max(1, -(-most * sizes.shape.link_bytes // PAGE_BYTES)) * PAGE_BYTES
    segments: list[Segment] = []
    registers: list[tuple[str, int]] = []
    streams: dict[int, list[tuple[int, int]]] = {}
    for master, lines in enumerate(lines_of_masters(sizes.shape, axi.masters)):
        begin = base + master * channel_bytes if channel_bytes else segments[-1].end if segments else base
        segment, written, places = _lay_out_master(words, lines, sizes, axi, begin, stride)
        if channel_bytes and segment.end > (begin // channel_bytes + 1) * channel_bytes:
            raise RtlError(
                f"master {master} has {segment.end - begin} bytes of this program, more than its channel's "
                f"{channel_bytes}; give larger channels, or cut the product"
            )
        segments.append(segment)
        registers += written
        streams |= places
    registers += [("result_stride", stride // PAGE_BYTES), *words.settings.items()]
    end = max(segment.end for segment in segments)
    if end > 1 << axi.address_bits:
        raise RtlError(
            f"the program ends at byte {end:#x}, beyond the {axi.address_bits} bits of the bus; give a lower base"
        )
    offsets = [(REGISTERS[name][0], value) for name, value in registers]
    return MemoryImage(segments, [stream for line in sorted(streams) for stream in streams[line]], offsets)


def read_output(image: MemoryImage, encoded: EncodedProgram, read: Callable[[int, int], bytes]) -> NDArray[np.uint32]:
    """Float32 bits of the output ``[m, n]``, from memory as ``read(address, size)`` returns it."""
    flit_bytes = encoded.sizes.shape.link_bytes
    contents = [read(address, flits * flit_bytes) for address, flits in image.streams]
    if encoded.program.reduces:
        return assemble_added(encoded, [sum_values(content) for content in contents])
    return assemble_output(encoded, [result_values(content) for content in contents])


def _lay_out_master(
    words: LineWords, lines: Sequence[int], sizes: FabricSizes, axi: AxiSpec, base: int, stride: int
) -> tuple[Segment, list[tuple[str, int]], dict[int, list[tuple[int, int]]]]:
    """The segment of one master from ``base`` on, the registers of its lines, and its result streams by line."""
    slots, content = Slots(sizes, axi), bytearray()
    registers: dict[int, list[tuple[str, int]]] = {}
    for line in lines:
        _check_line(line, words.commands[line], words.flits[line], sizes)
        slot = (slots.row if line < sizes.shape.mesh_rows else slots.column) * axi.beat_bytes
        registers[line] = [
            ("line", line),
            ("commands", len(words.commands[line])),
            ("command_page", _append(content, base, words.commands[line], slot)),
            ("data_page", _append(content, base, words.flits[line], sizes.shape.link_bytes)),
        ]
    end = base + len(content)
    streams: dict[int, list[tuple[int, int]]] = {}
    for line in lines:
        registers[line].append(("result_page", end // PAGE_BYTES))
        streams[line] = [(end + place * stride, flits) for place, flits in enumerate(words.streams[line])]
        end += len(words.streams[line]) * stride
    return Segment(base, bytes(content), end), [write for line in lines for write in registers[line]], streams


def _check_line(line: int, commands: Sequence[int], flits: Sequence[int], sizes: FabricSizes) -> None:
    if len(commands) >= 1 << COUNT_BITS:
        raise RtlError(
            f"line {line} has {len(commands)} commands, and a device counts fewer than {1 << COUNT_BITS}; "
            "cut the product"
        )
    if len(flits) > sizes.memory_flits:
        raise RtlError(
            f"line {line} has {len(flits)} flits, and a command reaches {sizes.memory_flits}; cut the product, or "
            "build with more memory_flits"
        )


def _append(content: bytearray, base: int, words: Sequence[int], size: int) -> int:
    """Append words of ``size`` bytes from a page boundary on; returns the number of that page."""
    page = (base + len(content)) // PAGE_BYTES
    content += b"".join(word.to_bytes(size, "little") for word in words)
    content += bytes(-len(content) % PAGE_BYTES)
    return page
