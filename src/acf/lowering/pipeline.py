"""The lowering as one pipeline. Every stage makes a frozen value that prints itself.

| stage | value | made by |
|---|---|---|
| trace | `Trace` | `acf.capture`: zero patterns of a training step |
| matrix products | `Gemm` | `matrix_products(trace, op)`: im2col, groups, residues of a stride |
| tiled product | `TiledProduct` | `tile_product(gemm, shape)`: tiles, and which operand is streamed |
| mapping | `OutputStationaryMapping` or `SplitKMapping` | `choose_mapping(product, shape)`: load balancing |
| program | `Program` | `lower_product(product, shape, mapping)`: packets of every controller |

Accelerator models start from the matrix products; only the fabric needs the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from acf.errors import ArchitectureError
from acf.lowering.fabric_shape import FabricShape
from acf.lowering.gemm import Gemm
from acf.lowering.mapping import Mapping, choose_mapping
from acf.lowering.packing import lower_product
from acf.lowering.products import matrix_products
from acf.lowering.program import Program
from acf.lowering.tiled_product import TiledProduct, tile_product
from acf.trace import Trace

SHOWN_PRODUCTS = 4  # of an operation, when its programs are dumped: attention has one per head and example


@dataclass(frozen=True, eq=False)
class LoweredGemm:
    """One matrix product at every stage after the first."""

    gemm: Gemm
    product: TiledProduct
    mapping: Mapping
    program: Program

    def __str__(self) -> str:
        stages = {
            "matrix product": self.gemm,
            "tiled product": self.product,
            "mapping": self.mapping,
            "program": self.program,
        }
        return "\n".join(f"{name}: {value}" for name, value in stages.items())


def lower_stages(gemm: Gemm, shape: FabricShape) -> LoweredGemm:
    """Take one product through all stages and keep each."""
    product = tile_product(gemm, shape)
    mapping = choose_mapping(product, shape)
    return LoweredGemm(gemm, product, mapping, lower_product(product, shape, mapping))


def lower_gemm(gemm: Gemm, shape: FabricShape) -> Program:
    """The program of one product; the streamed operand is the one that takes fewer cycles."""
    return lower_stages(gemm, shape).program


def dump_products(trace: Trace) -> str:
    """A table of every matrix product: operation, phase, m, k, n, densities of both operands, effectual MACs.

    >>> import numpy as np
    >>> from acf.trace import Matmul
    >>> print(dump_products(Trace.from_matmuls([Matmul("fc", "forward", a=np.eye(4), b=np.ones((4, 8)))])))
    operation  phase    m  k  n  density a  density b  effectual MACs
    fc         forward  4  4  8  0.2500     1.0000     32
    """
    rows: list[tuple[str, ...]] = [("operation", "phase", "m", "k", "n", "density a", "density b", "effectual MACs")]
    for op in trace.ops:
        for gemm in matrix_products(trace, op):
            densities = (f"{1 - operand.zeros_share:.4f}" for operand in (gemm.left, gemm.right))
            sizes = (str(size) for size in (gemm.m, gemm.k, gemm.n))
            rows.append((op.name, op.phase, *sizes, *densities, str(gemm.effectual_macs())))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def dump_program(trace: Trace, shape: FabricShape, op: str | None = None) -> str:
    """All stages of the first products of every operation, or of the operations called ``op``."""
    parts = []
    for each in trace.ops:
        if op not in (None, each.name):
            continue
        products = matrix_products(trace, each)
        for number, gemm in enumerate(islice(products, SHOWN_PRODUCTS), start=1):
            lowered = lower_stages(gemm, shape) if gemm.dense_macs else f"matrix product: {gemm}"
            parts.append(f"{each.name} {each.phase}, product {number} of {len(products)}\n{lowered}")
    return "\n\n".join(parts)


def _dump_program_for(trace: Trace, architecture: object) -> str:
    if not isinstance(architecture, FabricShape):
        raise ArchitectureError(
            f"{type(architecture).__name__} runs no packets, so it has no program to dump; choose a fabric such as "
            "acf-512, or dump products"
        )
    return dump_program(trace, architecture)


DUMPS: dict[str, Callable[[Trace, object], str]] = {
    "products": lambda trace, architecture: dump_products(trace),
    "program": _dump_program_for,
}
"""What `acf simulate --dump` can print: the two lowerings, by name."""


def dump(trace: Trace, lowering: str, architecture: object) -> str:
    """The text of one of `DUMPS` for a trace on an architecture."""
    if lowering not in DUMPS:
        raise ArchitectureError(f"dump {lowering!r} is not one of {', '.join(DUMPS)}; use one of these names")
    return DUMPS[lowering](trace, architecture)
