"""A product as a walking device reads it from memory: descriptor, index, and both operands once in every channel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from acf.errors import RtlError
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.decoding import chain_flits, stream_flits
from acf.rtl.design.fabric.encoding import EncodedProgram
from acf.rtl.design.index.indexed_program import IndexedProgram
from acf.rtl.device.host.image import INTERRUPTS, START, MemoryImage, Segment
from acf.rtl.device.registers import REGISTERS

WALKS = 8
"""Bit of the register `control`: the commands are made from a descriptor."""


def lay_out_indexed(
    indexed: IndexedProgram,
    axi: AxiSpec,
    base: int = 0,
    channel_bytes: int | None = None,
    interrupts: bool = False,
) -> MemoryImage:
    """The image of a product from byte ``base`` on: descriptor, index, tiles of both operands, then results.

    The host writes three registers, whatever the product: a line, the descriptor's page, the start. The channel of a
    master begins ``channel_bytes`` after that of the master before. Every channel has the operands, at the same place
    in each, since any line may read any of their tiles; a line's results go to the channel of its master.
    """
    _check(axi, base, channel_bytes)
    encoded = indexed.encoded
    shape, streams = encoded.sizes.shape, walked_streams(encoded)
    most = max(stream.flits for stream in streams)
    stride = max(1, -(-most * shape.link_bytes // PAGE_BYTES)) * PAGE_BYTES
    index = indexed.index.words.astype("<u4").tobytes()
    operands = [_flits(encoded.flits[line], shape.link_bytes) for line in (0, -1)]
    pages, page = [], base // PAGE_BYTES + 1
    for part in (index, *operands):
        pages.append(page)
        page += -(-len(part) // PAGE_BYTES)
    names = ("index_page", "serial_page", "parallel_page")
    places: dict[str, Any] = dict(zip(names, pages, strict=True))
    channel = channel_bytes if channel_bytes is not None and axi.masters > 1 else 0
    places |= {"result_page": page, "result_pages": stride // PAGE_BYTES, "channel_pages": channel // PAGE_BYTES}
    words = replace(indexed.index.descriptor, **places).words()
    head = _whole_pages(b"".join(word.to_bytes(4, "little") for word in words)) + _whole_pages(index)
    stored = b"".join(map(_whole_pages, operands))
    end = page * PAGE_BYTES + stride * (1 + max(stream.number for stream in streams))
    _check_reach(encoded, places)
    segments = [
        Segment(base + master * channel, (bytes(len(head)) if master else head) + stored, end + master * channel)
        for master in range(axi.masters)
    ]
    _check_end(segments, axi, channel_bytes)
    results = [
        (segments[stream.line % axi.masters].results + stream.number * stride, stream.flits) for stream in streams
    ]
    return MemoryImage(segments, results, walking_registers(base, interrupts))


@dataclass(frozen=True)
class ResultStream:
    """A stream of results of a walked product: its number in memory, its mesh row or mesh column, its flits."""

    number: int
    line: int
    flits: int


def walked_streams(encoded: EncodedProgram) -> list[ResultStream]:
    """Where a walked product leaves its results: by cluster, or by mesh column of the group that writes all sums."""
    columns = encoded.sizes.shape.mesh_columns
    if encoded.program.reduces:
        added = chain_flits(encoded)
        first = columns - len(added)
        return [ResultStream(first + place, first + place, flits) for place, flits in enumerate(added)]
    return [ResultStream(number, number // columns, flits) for number, flits in enumerate(stream_flits(encoded))]


def _check_reach(encoded: EncodedProgram, places: Mapping[str, int]) -> None:
    """Refuse blocks that a mesh row of a split-K product cannot address from its own operand on."""
    if not encoded.program.reduces:
        return
    page_flits = PAGE_BYTES // encoded.sizes.shape.link_bytes
    reach = (places["parallel_page"] - places["serial_page"]) * page_flits + len(encoded.flits[-1])
    if reach > encoded.sizes.memory_flits:
        raise RtlError(
            f"the operands of this product take {reach} flits, and a command reaches {encoded.sizes.memory_flits}; "
            "build with more memory_flits, or cut the product"
        )


def walking_registers(base: int, interrupts: bool = False) -> list[tuple[int, int]]:
    """The register writes that start the product whose descriptor lies at byte ``base``."""
    settings = {"line": 0, "command_page": base // PAGE_BYTES, "control": START | WALKS | INTERRUPTS * interrupts}
    return [(REGISTERS[name][0], value) for name, value in settings.items()]


def _check(axi: AxiSpec, base: int, channel_bytes: int | None) -> None:
    if base % PAGE_BYTES:
        raise RtlError(f"base {base:#x} is not a multiple of {PAGE_BYTES}, where pages begin; give one that is")
    if axi.masters > 1 and (not channel_bytes or channel_bytes % PAGE_BYTES):
        raise RtlError(
            f"channel_bytes {channel_bytes} of {axi.masters} masters must be a multiple of {PAGE_BYTES}; say how far "
            "their channels lie apart"
        )


def _check_end(segments: Sequence[Segment], axi: AxiSpec, channel_bytes: int | None) -> None:
    first, last = segments[0], segments[-1]
    if last.end > 1 << axi.address_bits:
        raise RtlError(
            f"the product ends at byte {last.end:#x}, beyond the {axi.address_bits} bits of the bus; give a lower base"
        )
    if axi.masters > 1 and channel_bytes and first.end > (first.base // channel_bytes + 1) * channel_bytes:
        raise RtlError(
            f"the product has {first.end - first.base} bytes in every channel of {channel_bytes}; give larger "
            "channels, or cut the product"
        )


def _whole_pages(part: bytes) -> bytes:
    return part + bytes(-len(part) % PAGE_BYTES)


def _flits(words: Sequence[int], size: int) -> bytes:
    return b"".join(word.to_bytes(size, "little") for word in words)
