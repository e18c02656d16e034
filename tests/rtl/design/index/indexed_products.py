"""Random products for the controllers that walk an index."""

import numpy as np

from acf.lowering import Gemm
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import TiledProduct, tile_product
from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.design.fabric.encoding import Bits
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.index.indexed_program import IndexedProgram, index_program


def random_indexed(
    seed: int,
    sizes: FabricSizes,
    group_columns: int,
    policy: str = "stored",
    direct: bool = False,
    masked: bool = False,
) -> IndexedProgram:
    """A random product under its mapping, indexed; ``masked`` keeps about half of its output tiles."""
    product, mapping, operands = random_mapped(seed, sizes, group_columns, masked=masked)
    return index_program(product, mapping, sizes, operands, policy, direct)


def random_split(
    seed: int, sizes: FabricSizes, split: int, most: int = 4, masked: bool = False
) -> tuple[TiledProduct, SplitKMapping, tuple[Bits, Bits]]:
    """As `random_mapped`, the reduction split over mesh rows and ``split`` groups of mesh columns."""
    product, operands = random_tiled(seed, sizes, most, masked)
    return product, SplitKMapping.balanced(product, sizes.shape, split), operands


def random_mapped(
    seed: int, sizes: FabricSizes, group_columns: int, most: int = 4, masked: bool = False
) -> tuple[TiledProduct, OutputStationaryMapping, tuple[Bits, Bits]]:
    """A random product with its output columns shared by ``group_columns`` mesh columns."""
    product, operands = random_tiled(seed, sizes, most, masked)
    return product, OutputStationaryMapping.balanced(product, sizes.shape, group_columns), operands


def random_tiled(seed: int, sizes: FabricSizes, most: int, masked: bool) -> tuple[TiledProduct, tuple[Bits, Bits]]:
    """A product of up to ``most`` tiles a side with ragged edges, absent blocks and zero tiles."""
    rng, tile = np.random.default_rng(seed), sizes.shape.tile
    m, k, n = (int(rng.integers(tile, most * tile + 1)) for _ in range(3))
    a = rng.standard_normal((m, k)) * (rng.random((m, k)) < rng.choice((0.02, 0.5)))
    blocks = rng.random((-(-k // tile), -(-n // tile))) < 0.6
    blocks[0, 0] = True
    b = rng.standard_normal((k, n)) * np.kron(blocks, np.ones((tile, tile)))[:k, :n]
    operands = (bf16_bits(a), bf16_bits(b))
    needed = None
    if masked:
        kept = rng.random((-(-m // tile), -(-n // tile))) < 0.5
        needed = np.kron(kept, np.ones((tile, tile), dtype=bool))[:m, :n]
    return tile_product(Gemm(a != 0, b != 0, needed), sizes.shape, swapped=False), operands
