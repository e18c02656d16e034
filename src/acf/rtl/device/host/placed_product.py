"""A product whose operands lie in memory as dense tiles, wherever a step has put them, and whose results stay there.

What a step computes on the device is not known to the host, so these programs are lowered as if every value of an
activation were non-zero: the commands depend on shapes and on the topology alone. Tiles are read dense; the fabric
skips their zeros all the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.lowering import SERIAL, Gemm, Program
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.packing import lower_product
from acf.lowering.tiled_product import TiledProduct, tile_product
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.decoding import stream_flits
from acf.rtl.design.fabric.encoding import Bits, EncodedProgram, encode
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.host.image import MemoryImage, lay_out_lines, line_words
from acf.rtl.device.host.shared_tiles import command_layout, with_data_pages, with_fields

ONE = 0x3F80
"""1.0 in bf16: stands for a value that is not yet known."""


@dataclass(frozen=True)
class PlacedMatrix:
    """``tiles``: the first flit of every dense tile by (row, column); ``transposed``: each is stored transposed."""

    tiles: Mapping[tuple[int, int], int]
    transposed: bool = False

    @property
    def T(self) -> "PlacedMatrix":  # noqa: N802, as in NumPy
        """The transpose, in the same place."""
        return PlacedMatrix({(column, row): at for (row, column), at in self.tiles.items()}, not self.transposed)


@dataclass(frozen=True, eq=False)
class DenseProduct:
    """A product under its mapping, as if every value of present tiles were 1: the bits of its operands are in it."""

    product: TiledProduct
    mapping: OutputStationaryMapping
    program: Program
    operands: tuple[Bits, Bits]


def map_dense(
    a: NDArray[np.bool_], b: NDArray[np.bool_], needed: NDArray[np.bool_] | None, sizes: FabricSizes
) -> DenseProduct:
    """The best output-stationary mapping of ``a [m, k] @ b [k, n]`` whose serial tiles are whole tiles of ``a``."""
    tile = sizes.shape.tile
    if any(size % tile for size in (*a.shape, *b.shape)):
        raise RtlError(f"a product of {a.shape} and {b.shape} has ragged tiles of {tile}; use multiples of it")
    product = tile_product(Gemm(a, b, needed), sizes.shape, swapped=False)
    columns = [count for count in range(1, sizes.shape.mesh_columns + 1) if sizes.shape.mesh_columns % count == 0]
    mappings = [OutputStationaryMapping.balanced(product, sizes.shape, count) for count in columns]
    serial, parallel = (np.where(each, np.uint16(ONE), np.uint16(0)) for each in (a, b))
    for mapping in sorted(mappings, key=lambda each: each.estimated_cycles):
        program = lower_product(product, sizes.shape, mapping)
        if _is_aligned(program, tile):
            return DenseProduct(product, mapping, program, (serial, parallel))
    raise RtlError(
        f"{a.shape[0]} rows, shared by {sizes.shape.mesh_rows} mesh rows, are no whole tiles of {tile} each; use a "
        f"multiple of {sizes.shape.mesh_rows * sizes.shape.mesh_columns * tile}"
    )


def encode_dense(
    a: NDArray[np.bool_], b: NDArray[np.bool_], needed: NDArray[np.bool_] | None, sizes: FabricSizes
) -> EncodedProgram:
    """The output-stationary program of ``a [m, k] @ b [k, n]``, non-zero where they are True, the left one streamed."""
    mapped = map_dense(a, b, needed, sizes)
    return encode(mapped.program, sizes, *mapped.operands)


def with_operands(encoded: EncodedProgram, a: Bits, b: Bits) -> EncodedProgram:
    """The same program over values that are now known, for a reference."""
    return replace(encoded, serial=a, parallel=b)


def lay_out_placed(encoded: EncodedProgram, a: PlacedMatrix, b: PlacedMatrix, axi: AxiSpec, base: int) -> MemoryImage:
    """The image of commands and results from byte ``base`` on; operands are read where they lie."""
    words = line_words(encoded)
    commands = [list(line) for line in words.commands]
    for line, index, kind, tile, k_tile in _packets(encoded):
        row_tile = int(encoded.program.tile_first_row[tile]) // encoded.sizes.shape.tile if kind == SERIAL else 0
        matrix, place = (a, (row_tile, k_tile)) if kind == SERIAL else (b, (k_tile, tile))
        fields = {"packed": 0, "address": matrix.tiles[place], "transposed": int(matrix.transposed)}
        if matrix.tiles[place] >= encoded.sizes.memory_flits:
            raise RtlError(
                f"a tile at flit {matrix.tiles[place]} is beyond the {encoded.sizes.memory_flits} that a command "
                "reaches; build with more memory_flits"
            )
        commands[line][index] = with_fields(commands[line][index], command_layout(encoded.sizes, line), fields)
    nothing: list[list[int]] = [[] for _ in commands]
    image = lay_out_lines(replace(words, commands=commands, flits=nothing), encoded.sizes, axi, base)
    return replace(image, registers=with_data_pages(image, dict.fromkeys(range(len(commands)), 0)))


def placed_results(encoded: EncodedProgram, image: MemoryImage) -> dict[tuple[int, int], int]:
    """The first flit of every result tile by (row, column), in the order in which the tiles lie in memory."""
    shape = encoded.sizes.shape
    tile_flits = 2 * shape.tile**2 // shape.link_bytes
    found: dict[tuple[int, int], int] = {}
    for cluster, (address, _) in enumerate(image.streams[: len(stream_flits(encoded))]):
        flit = address // shape.link_bytes
        row, column = divmod(cluster, shape.mesh_columns)
        for number in encoded.work[cluster].rounds:
            for place, (tile, column_tile) in enumerate(encoded.tiles[cluster, number]):
                row_tile = int(encoded.program.tile_first_row[tile]) // shape.tile
                found[row_tile, column_tile] = flit + place * tile_flits
            flit += int(encoded.program.round_flits[number, row, column])
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _is_aligned(program: Program, tile: int) -> bool:
    """Whether the serial tiles of a program are whole tiles of its operand."""
    return bool((program.tile_rows == tile).all() and (program.tile_first_row % tile == 0).all())


def _packets(encoded: EncodedProgram) -> Iterator[tuple[int, int, int, int, int]]:
    """Line, number of the command, kind, tile and k_tile of every packet."""
    rows = encoded.sizes.shape.mesh_rows
    for line in range(len(encoded.commands)):
        stream, place = (encoded.program.rows, line) if line < rows else (encoded.program.columns, line - rows)
        first = int(stream.first[place])
        for packet in range(first, int(stream.first[place + 1])):
            kind, tile, k_tile = (int(each[packet]) for each in (stream.kind, stream.row_tile, stream.k_tile))
            yield line, packet - first, kind, tile, k_tile


def page_of(size: int) -> int:
    """Bytes of whole pages that hold ``size`` bytes."""
    return -(-size // PAGE_BYTES) * PAGE_BYTES
