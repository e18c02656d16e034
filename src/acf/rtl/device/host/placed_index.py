"""A product from its descriptor whose operands lie in memory as dense tiles, wherever a step has put them.

Index and descriptor depend on shapes and on the topology alone, so they hold for every step until the topology changes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.lowering.product_index import ProductIndex, batch_words, row_bit_words
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.index.indexed_program import IndexedProgram, index_program
from acf.rtl.device.host.descriptor_image import walked_streams, walking_registers
from acf.rtl.device.host.image import MemoryImage, Segment
from acf.rtl.device.host.placed_product import PlacedMatrix, map_dense, page_of


def index_dense(
    a: NDArray[np.bool_],
    b: NDArray[np.bool_],
    needed: NDArray[np.bool_] | None,
    sizes: FabricSizes,
    direct: bool = False,
    dataflow: str = "output-stationary",
) -> IndexedProgram:
    """The index of ``a [m, k] @ b [k, n]`` over dense tiles; ``direct``: tiles of ``b`` lie by k, else by column.

    ``dataflow``: as for `map_dense`. The index of a split-K product tells of every block where it lies.
    """
    mapped = map_dense(a, b, needed, sizes, dataflow)
    own_place = mapped.program.reduces
    return index_program(mapped.product, mapped.mapping, sizes, mapped.operands, direct=direct and not own_place)


def lay_out_walked(
    indexed: IndexedProgram, a: PlacedMatrix, b: PlacedMatrix, axi: AxiSpec, base: int, after_vectors: int = 0
) -> MemoryImage:
    """Descriptor, index and room for results from byte ``base`` on; operands are read where they lie.

    The product begins when ``after_vectors`` vector descriptors are done. Refuses tiles of ``b`` that do not follow
    each other in the order of an output-stationary index, and row tiles of ``a`` that are not equally far apart.
    """
    shape, streams = indexed.encoded.sizes.shape, walked_streams(indexed.encoded)
    split_k = indexed.index.descriptor.split_k
    index, step = _with_tiles(indexed, a, b) if split_k else _with_places(indexed, a)
    stride = page_of(max(1, *(stream.flits for stream in streams)) * shape.link_bytes)
    index_bytes = index.astype("<u4").tobytes()
    results = base + PAGE_BYTES + page_of(len(index_bytes))
    places: dict[str, Any] = {
        "index_page": base // PAGE_BYTES + 1,
        "serial_page": 0,
        "parallel_page": 0 if split_k else _first_flit(indexed.index, b) * shape.link_bytes // PAGE_BYTES,
        "result_page": results // PAGE_BYTES,
        "result_pages": stride // PAGE_BYTES,
        "serial_transposed": a.transposed,
        "parallel_transposed": b.transposed,
        "serial_step": step,
        "after_vectors": after_vectors,
    }
    words = replace(indexed.index.descriptor, **places).words()
    head = b"".join(word.to_bytes(4, "little") for word in words).ljust(PAGE_BYTES, b"\0")
    content = head + index_bytes.ljust(page_of(len(index_bytes)), b"\0")
    segment = Segment(base, content, results + stride * (1 + max(stream.number for stream in streams)))
    if segment.end > 1 << axi.address_bits:
        raise RtlError(
            f"the product ends at byte {segment.end:#x}, beyond the {axi.address_bits} bits of the bus; "
            "give a lower base"
        )
    placed = [(results + stream.number * stride, stream.flits) for stream in streams]
    return MemoryImage([segment], placed, walking_registers(base))


def _with_places(indexed: IndexedProgram, a: PlacedMatrix) -> tuple[NDArray[np.uint32], int]:
    """The index with the first flit of every batch where it lies, and the flits from a row tile to the next."""
    descriptor, words = indexed.index.descriptor, indexed.index.words.copy()
    program, tile = indexed.encoded.program, descriptor.tile
    groups = indexed.encoded.sizes.shape.mesh_columns // descriptor.group_columns
    mesh_rows = indexed.encoded.sizes.shape.mesh_rows
    parts, live = mesh_rows * groups, groups * row_bit_words(mesh_rows)
    row_tiles = (program.tile_first_row // tile).tolist()
    step = parts * (a.tiles[1, 0] - a.tiles[0, 0]) if (1, 0) in a.tiles else 0
    size = batch_words(descriptor.row_tiles)
    limit = indexed.encoded.sizes.memory_flits
    for (row, k_tile), at in a.tiles.items():
        place, part = divmod(row, parts)
        batch, number = divmod(place, descriptor.row_tiles)
        first = a.tiles[row - number * parts, k_tile]
        if at != first + number * step:
            raise RtlError(
                f"row tile {row} at flit {at} is not {number} steps of {step} flits behind the first of its batch at "
                f"{first}; place row tiles equally far apart"
            )
        _check_reach([at], limit)
        k_step = batch * descriptor.k_tiles + k_tile
        words[descriptor.batches_at + k_step * descriptor.batch_stride + live + part * size] = first
    if sorted(row_tiles) != list(range(len(row_tiles))):
        raise RtlError("the serial tiles of this product are not those of its operand; use whole tiles")
    return words, step


def _with_tiles(indexed: IndexedProgram, a: PlacedMatrix, b: PlacedMatrix) -> tuple[NDArray[np.uint32], int]:
    """The index of a split-K product with the first flit of every k_tile and block, and that from a row to the next."""
    descriptor, words = indexed.index.descriptor, indexed.index.words.copy()
    limit = indexed.encoded.sizes.memory_flits
    _check_reach([*a.tiles.values(), *b.tiles.values()], limit)
    step = a.tiles[1, 0] - a.tiles[0, 0] if (1, 0) in a.tiles else 0
    for (row, k_tile), at in a.tiles.items():
        first = a.tiles[0, k_tile]
        if at != first + row * step:
            raise RtlError(
                f"row tile {row} at flit {at} is not {row} steps of {step} flits behind the first of its batch at "
                f"{first}; place row tiles equally far apart"
            )
        words[descriptor.batches_at + k_tile * descriptor.batch_stride] = first
    present = sorted((k_tile, column) for column, k_tile in indexed.index.parallel_address)
    for place, tile in enumerate(present):
        words[descriptor.entries_at + place] = b.tiles[tile]
    return words, step


def _check_reach(flits: Sequence[int], limit: int) -> None:
    """Refuse tiles beyond the flits that a command can address."""
    if flits and max(flits) >= limit:
        raise RtlError(
            f"a tile at flit {max(flits)} is beyond the {limit} that a command reaches; build with more memory_flits"
        )


def _first_flit(index: ProductIndex, b: PlacedMatrix) -> int:
    """Where the tiles of the stationary operand begin."""
    firsts = {b.tiles[k_tile, column] - at for (column, k_tile), at in index.parallel_address.items()}
    if len(firsts) != 1:
        raise RtlError("tiles of the stationary operand do not follow each other as the index has them; place them so")
    return firsts.pop()
