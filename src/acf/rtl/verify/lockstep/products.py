"""Matrix products to run on the fabric: random ones, and the forward pass of a block-sparse layer."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from acf.lowering import FabricShape, Gemm, Program, lower_gemm
from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.fabric.encoding import Bits, EncodedProgram, encode
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.verify.lockstep.model import Stalls
from acf.rtl.verify.workloads import Layer


@dataclass(frozen=True, eq=False)
class Product:
    """``a [m, k] @ b [k, n]`` as bf16 bits; the outputs ``needed [m, n]`` or all; a seed for stalls of memory."""

    a: Bits
    b: Bits
    needed: NDArray[np.bool_] | None = None
    stall_seed: int | None = None

    @classmethod
    def of_layer(cls, layer: Layer, tile: int) -> "Product":
        """The forward pass of a layer whose weight blocks have a tile's size."""
        a, b = layer.operands(tile)
        return cls(bf16_bits(a), bf16_bits(b))

    def lower(self, shape: FabricShape) -> Program:
        """The program of this product."""
        return lower_gemm(Gemm(_nonzero(self.a), _nonzero(self.b), self.needed), shape)

    def encode(self, sizes: FabricSizes) -> EncodedProgram:
        """The program of this product and its operands as the fabric takes them."""
        program = self.lower(sizes.shape)
        serial, parallel = (self.b.T, self.a.T) if program.swapped else (self.a, self.b)
        return encode(program, sizes, serial, parallel)

    def stalls(self, program: Program) -> Stalls:
        """Random waits for about half of the row packets, or none."""
        packets = program.rows.packets
        if self.stall_seed is None:
            return Stalls(np.zeros(packets, dtype=np.int64), 0)
        rng = np.random.default_rng(self.stall_seed)
        ticks = rng.integers(1, 40 << 16, packets) * (rng.random(packets) < 0.5)
        return Stalls(ticks.astype(np.int64), int(rng.integers(1, 30)))


def random_product(seed: int, tile: int, most: int = 5) -> Product:
    """A product of up to ``most`` tiles a side: random values, some rows and blocks empty, edges ragged."""
    rng = np.random.default_rng(seed)
    m, k, n = (int(rng.integers(1, most * tile + 1)) for _ in range(3))
    a = rng.standard_normal((m, k)) * (rng.random((m, k)) < rng.choice((0.05, 0.4, 1.0)))
    blocks = rng.random((-(-k // tile), -(-n // tile))) < rng.choice((0.3, 0.7, 1.0))
    b = rng.standard_normal((k, n)) * np.kron(blocks, np.ones((tile, tile)))[:k, :n]
    b *= rng.random((k, n)) < rng.choice((0.3, 1.0))
    needed = None
    if rng.random() < 0.4:
        tiles = rng.random((-(-m // tile), -(-n // tile))) < 0.6
        needed = np.kron(tiles, np.ones((tile, tile), dtype=bool))[:m, :n].astype(bool)
    seed_of_stalls = int(rng.integers(1 << 30)) if rng.random() < 0.5 else None
    return Product(bf16_bits(a), bf16_bits(b), needed, seed_of_stalls)


def sizes_for(shape: FabricShape, products: list[Product]) -> FabricSizes:
    """A fabric whose memories hold every one of ``products``, in powers of two."""
    sizes = FabricSizes(shape, command_depth=1 << 24, memory_flits=1 << 24)
    commands, flits = 2, 2
    for product in products:
        encoded = product.encode(sizes)
        commands = max(commands, *map(len, encoded.commands))
        flits = max(flits, *map(len, encoded.flits))
    return replace(sizes, command_depth=1 << (commands - 1).bit_length(), memory_flits=1 << (flits - 1).bit_length())


def _nonzero(bits: Bits) -> NDArray[np.bool_]:
    return np.asarray(bf16_values(bits) != 0)
