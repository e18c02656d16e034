"""Both sides of one product, and random products to run them on."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from acf.lowering import FabricShape, Gemm, Program, lower_gemm
from acf.rtl.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.fabric.sizes import FabricSizes
from acf.rtl.fabric.words import Bits, encode
from acf.rtl.lockstep.fabric import FabricSimulation
from acf.rtl.lockstep.model import Stalls, run_model
from acf.rtl.lockstep.record import Divergence, Record, first_divergence


@dataclass(frozen=True, eq=False)
class Product:
    """``a [m, k] @ b [k, n]`` as bf16 bits, with the output pieces ``needed [m, n]`` or all, and stalls of memory."""

    a: Bits
    b: Bits
    needed: NDArray[np.bool_] | None = None
    stall_seed: int | None = None

    def lower(self, shape: FabricShape) -> Program:
        """The program of this product."""
        return lower_gemm(Gemm(_nonzero(self.a), _nonzero(self.b), self.needed), shape)

    def stalls(self, program: Program) -> Stalls:
        """Random waits for about half of the row packets, or none."""
        packets = program.rows.packets
        if self.stall_seed is None:
            return Stalls(np.zeros(packets, dtype=np.int64), 0)
        rng = np.random.default_rng(self.stall_seed)
        ticks = rng.integers(1, 40 << 16, packets) * (rng.random(packets) < 0.5)
        return Stalls(ticks.astype(np.int64), int(rng.integers(1, 30)))


@dataclass(frozen=True, eq=False)
class Lockstep:
    """The two records of a product and the first difference between them, if any."""

    model: Record
    fabric: Record
    divergence: Divergence | None
    program: Program


def run_lockstep(product: Product, fabric: FabricSimulation) -> Lockstep:
    """Run a product on the model and on the gates."""
    sizes = fabric.sizes
    program = product.lower(sizes.shape)
    serial, parallel = (product.b.T, product.a.T) if program.swapped else (product.a, product.b)
    encoded = encode(program, sizes, serial, parallel)
    stalls = product.stalls(program)
    model = run_model(program, sizes, encoded, serial, parallel, stalls)
    found = fabric.run(program, encoded, stalls, model.cycles, (serial.shape[0], parallel.shape[1]))
    return Lockstep(model, found, first_divergence(model, found), program)


def random_product(seed: int, tile: int, most: int = 5) -> Product:
    """A product of up to ``most`` pieces a side: values at random, some rows and blocks empty, edges cut off."""
    rng = np.random.default_rng(seed)
    m, k, n = (int(rng.integers(1, most * tile + 1)) for _ in range(3))
    a = rng.standard_normal((m, k)) * (rng.random((m, k)) < rng.choice((0.05, 0.4, 1.0)))
    blocks = rng.random((-(-k // tile), -(-n // tile))) < rng.choice((0.3, 0.7, 1.0))
    b = rng.standard_normal((k, n)) * np.kron(blocks, np.ones((tile, tile)))[:k, :n]
    b *= rng.random((k, n)) < rng.choice((0.3, 1.0))
    needed = None
    if rng.random() < 0.4:
        pieces = rng.random((-(-m // tile), -(-n // tile))) < 0.6
        needed = np.kron(pieces, np.ones((tile, tile), dtype=bool))[:m, :n].astype(bool)
    seed_of_stalls = int(rng.integers(1 << 30)) if rng.random() < 0.5 else None
    return Product(bf16_bits(a), bf16_bits(b), needed, seed_of_stalls)


def layer_product(
    tokens: int, inputs: int, outputs: int, tile: int, zeros: float, sparsity: float, seed: int
) -> Product:
    """A block-sparse layer's forward pass: ``zeros`` of the left operand, ``sparsity`` of the right one's blocks."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((tokens, inputs)) * (rng.random((tokens, inputs)) >= zeros)
    blocks = rng.random((-(-inputs // tile), -(-outputs // tile))) >= sparsity
    b = rng.standard_normal((inputs, outputs)) * np.kron(blocks, np.ones((tile, tile)))[:inputs, :outputs]
    return Product(bf16_bits(a), bf16_bits(b))


def sizes_for(shape: FabricShape, products: list[Product]) -> FabricSizes:
    """A fabric whose memories hold every one of ``products``, in powers of two."""
    sizes = FabricSizes(shape, command_depth=1 << 24, memory_flits=1 << 24)
    commands, flits = 2, 2
    for product in products:
        program = product.lower(shape)
        serial, parallel = (product.b.T, product.a.T) if program.swapped else (product.a, product.b)
        encoded = encode(program, sizes, serial, parallel)
        commands = max(commands, *map(len, encoded.commands))
        flits = max(flits, *map(len, encoded.flits))
    return replace(sizes, command_depth=1 << (commands - 1).bit_length(), memory_flits=1 << (flits - 1).bit_length())


def _nonzero(bits: Bits) -> NDArray[np.bool_]:
    return np.asarray(bf16_values(bits) != 0)
