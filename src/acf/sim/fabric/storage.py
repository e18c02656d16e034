"""Bytes of a tensor in the fabric's memory, with what its controllers need to find its tiles."""

from math import ceil

import numpy as np

from acf.lowering import FabricShape, PackedRows
from acf.lowering.descriptor import WORD_BYTES
from acf.lowering.product_index import SIZES_PER_WORD, flits_of, size_bytes
from acf.lowering.tiles import TiledRows
from acf.trace import BitTensor


def tensor_bytes(shape: FabricShape, bits: BitTensor, role: str, packed_bytes: int) -> int:
    """Bytes of a tensor whose values alone take ``packed_bytes``.

    Weights are block-CSR: their tiles in flits, and for each tile an entry and a slot, with which it is walked by rows
    and by columns (`acf.lowering.product_index`). Others have a size byte per tile and two words for every batch, here
    of four tiles: those of a round may be more.
    """
    if role == "weight" and bits.size and len(bits.shape) >= 2:
        return _block_csr_bytes(shape, bits)
    tiles = ceil(bits.size / shape.tile**2)
    return packed_bytes + tiles + 2 * WORD_BYTES * ceil(tiles / SIZES_PER_WORD)


def _block_csr_bytes(shape: FabricShape, bits: BitTensor) -> int:
    """Blocks and index of ``[out, in, ...]``; what comes after the input channels lies before them in the reduction."""
    pattern = bits.to_bool()
    matrix = np.moveaxis(pattern, 1, -1).reshape(pattern.shape[0], -1)
    tiles = TiledRows.of(PackedRows.from_bool(np.ascontiguousarray(matrix)), shape.tile)
    sizes = size_bytes(tiles.tile_nonzeros, shape)
    blocks = int((sizes > 0).sum())
    offsets = tiles.tiles + 1 + tiles.k_tiles + 1
    flits = int(np.asarray(flits_of(sizes)).sum())
    return flits * shape.link_bytes + WORD_BYTES * (offsets + 2 * blocks)
