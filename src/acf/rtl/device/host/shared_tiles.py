"""A second program over tiles that already lie in memory: the input gradient reads the weight of the forward pass.

The weight is stored once. Where the input gradient needs the transpose of a dense tile that a master's memory holds,
its command points to that tile, and the device transposes it on the way (`acf.rtl.device.transposer`). Packed tiles,
and tiles that another master has, are stored again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from amaranth.lib import data

from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.encoding import EncodedProgram
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.host.image import LineWords, MemoryImage, lay_out_lines, line_words
from acf.rtl.device.registers import REGISTERS
from acf.sim.fabric.memory_ports import lines_of_masters

Tile = tuple[int, ...]


def lay_out_transposed(
    encoded: EncodedProgram,
    forward: EncodedProgram,
    image: MemoryImage,
    axi: AxiSpec,
    channel_bytes: int | None = None,
) -> MemoryImage:
    """The image of ``encoded`` behind that of ``forward``, whose tiles it reads transposed instead of copies."""
    masters = lines_of_masters(encoded.sizes.shape, axi.masters)
    begins = [segment.base for segment in image.segments]
    base = begins[0] + max(segment.end - segment.base for segment in image.segments)
    if channel_bytes is None:
        base = image.segments[-1].end
    known = [_dense_tiles(forward, lines, _data_addresses(image)) for lines in masters]
    words, places = _share(encoded, masters, known)
    first = lay_out_lines(words, encoded.sizes, axi, base, channel_bytes)  # tells where tiles of its own will lie
    own = _data_addresses(first)
    link = encoded.sizes.shape.link_bytes
    commands = [list(line) for line in words.commands]
    for master, lines in enumerate(masters):
        for line in lines:
            for index, (address, is_shared) in places[line].items():
                absolute = address if is_shared else own[line] + address * link
                fields = {"address": (absolute - begins[master]) // link, "transposed": int(is_shared)}
                commands[line][index] = with_fields(commands[line][index], command_layout(encoded.sizes, line), fields)
    laid = lay_out_lines(replace(words, commands=commands), encoded.sizes, axi, base, channel_bytes)
    pages = {line: begins[master] // PAGE_BYTES for master, lines in enumerate(masters) for line in lines}
    return replace(laid, registers=with_data_pages(laid, pages))


def transposed_commands(image: MemoryImage, encoded: EncodedProgram, axi: AxiSpec) -> int:
    """How many commands of an image read a tile transposed."""
    from acf.rtl.device.fetcher import Slots

    sizes, slots, counted = encoded.sizes, Slots(encoded.sizes, axi), 0
    for master, lines in enumerate(lines_of_masters(sizes.shape, axi.masters)):
        segment = image.segments[master]
        for line in lines:
            slot = (slots.row if line < sizes.shape.mesh_rows else slots.column) * axi.beat_bytes
            bit = command_layout(sizes, line)["transposed"].offset
            at = _register(image, "command_page")[line] * PAGE_BYTES - segment.base
            for start in range(at, at + _register(image, "commands")[line] * slot, slot):
                counted += int.from_bytes(segment.content[start : start + slot], "little") >> bit & 1
    return counted


def _share(
    encoded: EncodedProgram, masters: list[list[int]], known: list[dict[Tile, int]]
) -> tuple[LineWords, dict[int, dict[int, tuple[int, bool]]]]:
    """The program's words with its own tiles alone; by line and command: (address, whether a known tile lies there).

    Addresses of known tiles are bytes of memory; those of the program's own are flits of the line.
    """
    flits: list[list[int]] = [[] for _ in encoded.commands]
    places: dict[int, dict[int, tuple[int, bool]]] = {}
    for master, lines in enumerate(masters):
        for line in lines:
            places[line], stored = {}, {}
            for index, tile, is_packed in _tiles(encoded, line):
                turned = None if is_packed else known[master].get(_transpose(tile, encoded.sizes))
                if turned is None and (tile, is_packed) not in stored:
                    stored[tile, is_packed] = len(flits[line])
                    flits[line] += tile
                places[line][index] = (stored[tile, is_packed], False) if turned is None else (turned, True)
    return replace(line_words(encoded), flits=flits), places


def _dense_tiles(encoded: EncodedProgram, lines: list[int], addresses: Mapping[int, int]) -> dict[Tile, int]:
    """Byte addresses of the dense tiles of a program's lines."""
    found: dict[Tile, int] = {}
    for line in lines:
        layout = command_layout(encoded.sizes, line)
        for index, tile, is_packed in _tiles(encoded, line):
            if not is_packed:
                flit = _field(encoded.commands[line][index], layout, "address")
                found[tile] = addresses[line] + flit * encoded.sizes.shape.link_bytes
    return found


def _tiles(encoded: EncodedProgram, line: int) -> Iterator[tuple[int, Tile, bool]]:
    """Number of the command, flits and form of every packet of a line; rounds of partial sums are no packets."""
    if encoded.program.reduces and line >= encoded.sizes.shape.mesh_rows:
        return
    layout = command_layout(encoded.sizes, line)
    for index, word in enumerate(encoded.commands[line]):
        address, count = _field(word, layout, "address"), _field(word, layout, "flits")
        yield index, tuple(encoded.flits[line][address : address + count]), bool(_field(word, layout, "packed"))


def _transpose(tile: Tile, sizes: FabricSizes) -> Tile:
    """The flits of the transpose of a dense tile."""
    side, size = sizes.shape.tile, sizes.shape.link_bytes
    payload = b"".join(flit.to_bytes(size, "little") for flit in tile)
    turned = np.ascontiguousarray(np.frombuffer(payload, dtype="<u2").reshape(side, side).T).tobytes()
    return tuple(int.from_bytes(turned[at : at + size], "little") for at in range(0, len(turned), size))


def command_layout(sizes: FabricSizes, line: int) -> data.StructLayout:
    """The layout of a line's command words."""
    rows = sizes.shape.mesh_rows
    return sizes.command(sizes.shape.mesh_columns if line < rows else rows, serial=line < rows)


def _field(word: int, layout: data.StructLayout, name: str) -> int:
    field = layout[name]
    return int(word >> field.offset & ((1 << field.width) - 1))


def with_fields(word: int, layout: data.StructLayout, fields: Mapping[str, int]) -> int:
    """A command word with other values of some fields."""
    for name, value in fields.items():
        field = layout[name]
        word = word & ~(((1 << field.width) - 1) << field.offset) | value << field.offset
    return word


def _register(image: MemoryImage, name: str) -> dict[int, int]:
    """A register of every line, by line."""
    found, line = {}, 0
    for offset, value in image.registers:
        if offset == REGISTERS["line"][0]:
            line = value
        elif offset == REGISTERS[name][0]:
            found[line] = value
    return found


def _data_addresses(image: MemoryImage) -> dict[int, int]:
    """The byte from which the flits of every line are counted."""
    return {line: page * PAGE_BYTES for line, page in _register(image, "data_page").items()}


def with_data_pages(image: MemoryImage, pages: Mapping[int, int]) -> list[tuple[int, int]]:
    """An image's registers with other pages for the flits of every line."""
    line, written = 0, []
    for offset, value in image.registers:
        if offset == REGISTERS["line"][0]:
            line = value
        written.append((offset, pages[line] if offset == REGISTERS["data_page"][0] else value))
    return written
