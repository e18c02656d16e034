"""A program as a device reads it from memory, and its results as the device writes them there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.controller import COUNT_BITS
from acf.rtl.design.fabric.decoding import assemble_output, result_values, stream_flits, sum_values
from acf.rtl.design.fabric.encoding import EncodedProgram
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.fetcher import Slots
from acf.rtl.device.registers import REGISTERS

START, REDUCES, INTERRUPTS = 1, 2, 4
"""Bits of the register `control`."""


@dataclass(frozen=True, eq=False)
class MemoryImage:
    """Addresses in bytes: ``content`` from ``base`` on, result streams from ``results`` on, ``result_stride`` apart.

    ``registers`` are (offset, value) to write in this order; the last write starts the program.
    """

    base: int
    content: bytes
    results: int
    result_stride: int
    streams: Sequence[int]
    registers: Sequence[tuple[int, int]]

    @property
    def end(self) -> int:
        """The first byte after the image."""
        return self.results + len(self.streams) * self.result_stride


def lay_out(encoded: EncodedProgram, axi: AxiSpec, base: int = 0, interrupts: bool = False) -> MemoryImage:
    """The image of a program from byte ``base`` on: every line's commands and flits, each from a page on, then results.

    Raises `RtlError` where ``base`` is not a page's first byte, or the program is more than the device can address.
    """
    control = START | REDUCES * encoded.program.reduces | INTERRUPTS * interrupts
    settings = {"edge_cycles": encoded.edge_cycles, "control": control}
    streams = stream_flits(encoded)
    return lay_out_lines(encoded.commands, encoded.flits, streams, settings, encoded.sizes, axi, base)


def lay_out_lines(
    commands: Sequence[Sequence[int]],
    flits: Sequence[Sequence[int]],
    streams: Sequence[int],
    settings: Mapping[str, int],
    sizes: FabricSizes,
    axi: AxiSpec,
    base: int = 0,
) -> MemoryImage:
    """The image of commands and flits by line and of ``streams`` of so many flits; ``settings`` are written last."""
    if base % PAGE_BYTES:
        raise RtlError(f"base {base:#x} is not a multiple of {PAGE_BYTES}, where pages begin; give one that is")
    slots, rows = Slots(sizes, axi), sizes.shape.mesh_rows
    content = bytearray()
    registers = []
    for line in range(len(commands)):
        _check_line(line, commands[line], flits[line], sizes)
        slot = (slots.row if line < rows else slots.column) * axi.beat_bytes
        registers += [
            ("line", line),
            ("commands", len(commands[line])),
            ("command_page", _append(content, base, commands[line], slot)),
            ("data_page", _append(content, base, flits[line], sizes.shape.link_bytes)),
        ]
    results = base + len(content)
    stride = max(1, -(-max(streams) * sizes.shape.link_bytes // PAGE_BYTES)) * PAGE_BYTES
    registers += [("result_page", results // PAGE_BYTES), ("result_pages", stride // PAGE_BYTES), *settings.items()]
    offsets = [(REGISTERS[name][0], value) for name, value in registers]
    image = MemoryImage(base, bytes(content), results, stride, streams, offsets)
    if image.end > 1 << axi.address_bits:
        raise RtlError(
            f"the program ends at byte {image.end:#x}, beyond the {axi.address_bits} bits of the bus; give a lower base"
        )
    return image


def read_output(image: MemoryImage, encoded: EncodedProgram, read: Callable[[int, int], bytes]) -> NDArray[np.uint32]:
    """Float32 bits of the output ``[m, n]``, from memory as ``read(address, size)`` returns it."""
    values = sum_values if encoded.program.reduces else result_values
    flit_bytes = encoded.sizes.shape.link_bytes
    streams = [
        values(read(image.results + index * image.result_stride, flits * flit_bytes))
        for index, flits in enumerate(image.streams)
    ]
    return assemble_output(encoded, streams)


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
