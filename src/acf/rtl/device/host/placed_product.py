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
from acf.lowering.fabric_shape import SUM_BYTES, VALUE_BYTES
from acf.lowering.mapping import SPLIT_K_GAIN
from acf.lowering.mapping import Mapping as ProductMapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.packing import lower_product
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import TiledProduct, tile_product
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.decoding import chain_rounds, stream_flits
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
    mapping: ProductMapping
    program: Program
    operands: tuple[Bits, Bits]


DATAFLOWS = ("output-stationary", "split-K", "fastest")
"""How a product is mapped; fastest: by estimated cycles, as lowering chooses."""


def map_dense(
    a: NDArray[np.bool_],
    b: NDArray[np.bool_],
    needed: NDArray[np.bool_] | None,
    sizes: FabricSizes,
    dataflow: str = "output-stationary",
) -> DenseProduct:
    """The best mapping of ``a [m, k] @ b [k, n]`` of a dataflow whose serial tiles are whole tiles of ``a``."""
    tile, shape = sizes.shape.tile, sizes.shape
    if dataflow not in DATAFLOWS:
        raise RtlError(f"dataflow {dataflow!r} is not one of {', '.join(DATAFLOWS)}; use one of these")
    if any(size % tile for size in (*a.shape, *b.shape)):
        raise RtlError(f"a product of {a.shape} and {b.shape} has ragged tiles of {tile}; use multiples of it")
    product = tile_product(Gemm(a, b, needed), shape, swapped=False)
    columns = [count for count in range(1, shape.mesh_columns + 1) if shape.mesh_columns % count == 0]
    stationary, splits = list[ProductMapping](), list[ProductMapping]()
    if dataflow != "split-K":
        stationary += [OutputStationaryMapping.balanced(product, shape, count) for count in columns]
    if dataflow != "output-stationary":
        splits += [SplitKMapping.balanced(product, shape, count) for count in columns]
    serial, parallel = (np.where(each, np.uint16(ONE), np.uint16(0)) for each in (a, b))
    for mapping in sorted([*stationary, *splits], key=_estimated_cycles):
        program = lower_product(product, shape, mapping)
        if _is_aligned(program, tile):
            return DenseProduct(product, mapping, program, (serial, parallel))
    raise RtlError(
        f"{a.shape[0]} rows, shared by {sizes.shape.mesh_rows} mesh rows, are no whole tiles of {tile} each; use a "
        f"multiple of {sizes.shape.mesh_rows * sizes.shape.mesh_columns * tile}"
    )


def _estimated_cycles(mapping: ProductMapping) -> float:
    """Those that rank mappings: split-K must be faster by as much as lowering asks for."""
    split_k = isinstance(mapping, SplitKMapping)
    return mapping.estimated_cycles / SPLIT_K_GAIN if split_k else mapping.estimated_cycles


def encode_dense(
    a: NDArray[np.bool_],
    b: NDArray[np.bool_],
    needed: NDArray[np.bool_] | None,
    sizes: FabricSizes,
    dataflow: str = "output-stationary",
) -> EncodedProgram:
    """The program of ``a [m, k] @ b [k, n]``, non-zero where they are True, the left one streamed."""
    mapped = map_dense(a, b, needed, sizes, dataflow)
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
    tile_flits = result_tile_flits(encoded)
    found: dict[tuple[int, int], int] = {}
    if encoded.program.reduces:
        return _placed_sums(encoded, image, tile_flits)
    for cluster, (address, _) in enumerate(image.streams[: len(stream_flits(encoded))]):
        flit = address // shape.link_bytes
        row, column = divmod(cluster, shape.mesh_columns)
        for number in encoded.work[cluster].rounds:
            for place, (tile, column_tile) in enumerate(encoded.tiles[cluster, number]):
                row_tile = int(encoded.program.tile_first_row[tile]) // shape.tile
                found[row_tile, column_tile] = flit + place * tile_flits
            flit += int(encoded.program.round_flits[number, row, column])
    return dict(sorted(found.items(), key=lambda item: item[1]))


def result_tile_flits(encoded: EncodedProgram) -> int:
    """Flits of a result tile: bf16, or float32 where partial sums are added."""
    shape = encoded.sizes.shape
    return (SUM_BYTES if encoded.program.reduces else VALUE_BYTES) * shape.tile**2 // shape.link_bytes


def _placed_sums(encoded: EncodedProgram, image: MemoryImage, tile_flits: int) -> dict[tuple[int, int], int]:
    """The same where every mesh column of a group has a stream of sums."""
    found: dict[tuple[int, int], int] = {}
    for column, (address, _) in enumerate(image.streams):
        flit = address // encoded.sizes.shape.link_bytes
        for number in chain_rounds(encoded, column):
            tiles = chain_tiles(encoded, column, number)
            for place, tile in enumerate(tiles):
                found[tile] = flit + place * tile_flits
            flit += len(tiles) * tile_flits
    return dict(sorted(found.items(), key=lambda item: item[1]))


def chain_tiles(encoded: EncodedProgram, column: int, number: int) -> list[tuple[int, int]]:
    """The tiles of a round whose sums leave at a mesh column of a group."""
    columns = encoded.sizes.shape.mesh_columns
    chain = range(column, columns, columns // encoded.program.split)
    return next(encoded.tiles[each, number] for each in chain if (each, number) in encoded.tiles)


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
