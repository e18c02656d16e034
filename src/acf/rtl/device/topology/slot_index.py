"""An index whose blocks have slots in any order, and whose mapping holds for every topology.

Owners, orders and batches are those of the dense layer; offsets, slots, entries and mask alone tell the topology, and
each begins at a flit, so that the topology unit can write them anew. Of a split-K weight gradient the list of output
tiles tells it, which lies behind the list of all tiles.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acf.lowering import Gemm
from acf.lowering.descriptor import ProductDescriptor
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.product_index import ProductIndex, build_index, size_bytes
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import tile_product
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.index.indexed_program import IndexedProgram, index_program
from acf.rtl.device.host.placed_product import ONE, DenseProduct, map_dense

Words = NDArray[np.int64]
PARTS = ("slots_at", "entries_at", "owners_at", "orders_at", "batches_at", "mask_at")
"""Fields of a descriptor that say where a part of its index begins, in order; offsets come before all."""


def index_by_slots(
    a: NDArray[np.bool_],
    slots: Mapping[tuple[int, int], int],
    needed: NDArray[np.bool_] | None,
    columns: int,
    sizes: FabricSizes,
) -> IndexedProgram:
    """The index of ``a [m, k] @ b [k, columns]`` over dense tiles; ``slots``: of every tile (k_tile, column) of ``b``.

    ``needed`` is the mask of the output; the mapping is that of a product without absent blocks in mask and ``b``.
    """
    tile = sizes.shape.tile
    full = np.ones((a.shape[1], columns), dtype=bool)
    whole = map_dense(a, full, None if needed is None else np.ones_like(needed), sizes)
    assert isinstance(whole.mapping, OutputStationaryMapping)
    mapping = replace(whole.mapping, ordered_for=whole.product.present)
    present = np.zeros((a.shape[1] // tile, columns // tile), dtype=bool)
    present[tuple(np.array(list(slots)).T)] = True
    b = np.kron(present, np.ones((tile, tile), dtype=bool))
    product = tile_product(Gemm(a, b, needed), sizes.shape, swapped=False)
    operands = whole.operands[0], np.where(b, np.uint16(ONE), np.uint16(0))
    encoded = index_program(product, mapping, sizes, operands).encoded
    return IndexedProgram(_with_slots(build_index(whole.product, mapping, sizes.shape), slots, needed, sizes), encoded)


@dataclass(frozen=True, eq=False)
class ListedTiles:
    """A split-K product whose index has two lists of output tiles: ``whole`` walks all of them, ``listed`` those kept.

    Both have the same words. The second list begins at a flit: ``owners_at`` of the descriptor of ``listed``.
    """

    whole: IndexedProgram
    listed: IndexedProgram


def index_with_list(dense: DenseProduct, kept: NDArray[np.bool_], sizes: FabricSizes) -> ListedTiles:
    """The index of a split-K product ``dense`` of all output tiles, and of those that ``kept [rows, columns]`` tells.

    Both deal their tiles out to the mesh columns of a group in turn, as the topology unit does.
    """
    assert isinstance(dense.mapping, SplitKMapping)
    flit_words = sizes.flit_bits // 32
    whole = _dealt_tiles(dense, np.ones_like(kept), dense.mapping.split, sizes)
    listed = _dealt_tiles(dense, kept, dense.mapping.split, sizes)
    at, others = listed.index.descriptor, listed.index.words.astype(np.int64)
    words = [
        _whole_flits(whole.index.words.astype(np.int64), flit_words),
        _whole_flits(others[at.owners_at : at.orders_at], flit_words),
        others[at.orders_at : at.batches_at],
    ]
    content = np.concatenate(words).astype(np.uint32)
    descriptor = replace(
        whole.index.descriptor,
        owners_at=len(words[0]),
        orders_at=len(words[0]) + len(words[1]),
        column_rounds=at.column_rounds,
        index_words=int(content.size),
    )
    return ListedTiles(
        replace(whole, index=replace(whole.index, words=content)),
        replace(listed, index=replace(listed.index, words=content, descriptor=descriptor)),
    )


def _dealt_tiles(dense: DenseProduct, kept: NDArray[np.bool_], split: int, sizes: FabricSizes) -> IndexedProgram:
    product, shape = replace(dense.product, needed=kept), sizes.shape
    owners = np.arange(int(kept.sum()), dtype=np.int64) % (shape.mesh_columns // split)
    mapping = SplitKMapping.with_owners(product, shape, split, owners)
    return index_program(product, mapping, sizes, dense.operands)


def block_words(slots: Mapping[tuple[int, int], int], lines: int, size: int) -> tuple[Words, Words, Words]:
    """Offsets, slots and entries: blocks by (line, index), in the order of the walk."""
    by_slot = sorted(slots, key=lambda block: slots[block])
    counts = np.bincount([line for line, _ in slots], minlength=lines)
    return (
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        np.array([slots[block] for block in sorted(slots)], dtype=np.int64),
        np.array([index | size << 16 for _, index in by_slot], dtype=np.int64),
    )


def mask_words(needed: NDArray[np.bool_]) -> Words:
    """The mask of output tiles ``needed [rows, columns]``, in words of 32 columns."""
    padded = np.pad(needed, ((0, 0), (0, -needed.shape[1] % 32)))
    packed = np.ascontiguousarray(np.packbits(padded, axis=1, bitorder="little"))
    return packed.view("<u4").astype(np.int64).reshape(-1)


def _with_slots(
    whole: ProductIndex,
    slots: Mapping[tuple[int, int], int],
    needed: NDArray[np.bool_] | None,
    sizes: FabricSizes,
) -> ProductIndex:
    """The index of the dense layer with other blocks and another mask, its parts at whole flits."""
    at, tile = whole.descriptor, sizes.shape.tile
    flit_words = sizes.flit_bits // 32
    size = int(size_bytes(np.array([tile * tile]), sizes.shape)[0])
    bounds = [getattr(at, name) for name in PARTS]
    kept = [whole.words[begin:end].astype(np.int64) for begin, end in pairwise(bounds[2:])]
    mask = np.zeros(0, dtype=np.int64) if needed is None else mask_words(needed[::tile, ::tile])
    offsets, *rest = [*block_words(slots, at.k_tiles, size), *kept, mask]
    words = [_whole_flits(offsets, flit_words)]
    starts: dict[str, Any] = {}
    for name, part in zip(PARTS, rest, strict=True):
        starts[name] = sum(map(len, words))
        words.append(_whole_flits(part, flit_words))
    content = np.concatenate(words).astype(np.uint32)
    descriptor: ProductDescriptor = replace(
        at, blocks=len(slots), index_words=int(content.size), masked=needed is not None, **starts
    )
    tile_flits = 2 * tile**2 // sizes.shape.link_bytes
    parallel = {(column, k_tile): slot * tile_flits for (k_tile, column), slot in slots.items()}
    return ProductIndex(descriptor, content, whole.serial_address, parallel)


def _whole_flits(part: Words, flit_words: int) -> Words:
    return np.pad(part, (0, -part.size % flit_words))
