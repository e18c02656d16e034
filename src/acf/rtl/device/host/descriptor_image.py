"""A product as a walking device reads it from memory: descriptor, index, and both operands once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from acf.errors import RtlError
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.decoding import stream_flits
from acf.rtl.design.index.indexed_program import IndexedProgram
from acf.rtl.device.host.image import INTERRUPTS, START, MemoryImage, Segment
from acf.rtl.device.registers import REGISTERS

WALKS = 8
"""Bit of the register `control`: the commands are made from a descriptor."""


def lay_out_indexed(indexed: IndexedProgram, axi: AxiSpec, base: int = 0, interrupts: bool = False) -> MemoryImage:
    """The image of a product from byte ``base`` on: descriptor, index, tiles of both operands, then results.

    The host writes three registers, whatever the product: a line, the descriptor's page, the start.
    """
    if base % PAGE_BYTES:
        raise RtlError(f"base {base:#x} is not a multiple of {PAGE_BYTES}, where pages begin; give one that is")
    encoded = indexed.encoded
    shape, streams = encoded.sizes.shape, stream_flits(encoded)
    stride = max(1, -(-max(streams) * shape.link_bytes // PAGE_BYTES)) * PAGE_BYTES
    index = indexed.index.words.astype("<u4").tobytes()
    serial, parallel = _flits(encoded.flits[0], shape.link_bytes), _flits(encoded.flits[-1], shape.link_bytes)
    parts, pages, page = [index, serial, parallel], [], base // PAGE_BYTES + 1
    for part in parts:
        pages.append(page)
        page += -(-len(part) // PAGE_BYTES)
    names = ("index_page", "serial_page", "parallel_page")
    places: dict[str, Any] = dict(zip(names, pages, strict=True))
    places |= {"result_page": page, "result_pages": stride // PAGE_BYTES}
    words = replace(indexed.index.descriptor, **places).words()
    descriptor = b"".join(word.to_bytes(4, "little") for word in words)
    content = b"".join(part + bytes(-len(part) % PAGE_BYTES) for part in (descriptor, *parts))
    settings = {"line": 0, "command_page": base // PAGE_BYTES, "control": START | WALKS | INTERRUPTS * interrupts}
    registers = [(REGISTERS[name][0], value) for name, value in settings.items()]
    segment = Segment(base, content, page * PAGE_BYTES + stride * len(streams))
    if segment.end > 1 << axi.address_bits:
        raise RtlError(
            f"the product ends at byte {segment.end:#x}, beyond the {axi.address_bits} bits of the bus; give a lower "
            "base"
        )
    return MemoryImage(
        [segment], [(segment.results + number * stride, flits) for number, flits in enumerate(streams)], registers
    )


def _flits(words: Sequence[int], size: int) -> bytes:
    return b"".join(word.to_bytes(size, "little") for word in words)
