"""From a product to the words that a fabric decodes, and from those words back to the mapping that they encode.

A program is compiled for a topology and not for values: the weight's present blocks and all other operands count as
full. `bind` takes over owners and order of the reduction for operands with zeros of their own; what it adds are the
sizes of tiles, which memory controllers know once an operand is stored.
"""

from dataclasses import dataclass

import numpy as np

from acf.lowering import FabricShape, Gemm
from acf.lowering.mapping import Mapping, choose_mapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.product_index import EMPTY_ROUND, build_index
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import TiledProduct, tile_product
from acf.runtime.matrices import MatrixProduct, full_operands, split_product
from acf.runtime.product import Product
from acf.runtime.program import FabricProduct, Program, fabric_number


@dataclass(frozen=True, eq=False)
class Bound:
    """One matrix multiplication of a program with the zeros of its operands, tiled and mapped as the program says."""

    gemm: Gemm
    product: TiledProduct
    mapping: Mapping


def compile_product(product: Product, shape: FabricShape, walked: bool = False) -> Program:
    """The program of ``product`` for a fabric of ``shape``.

    ``walked``: as the runtime lays operands out for the gates, with the left one streamed.
    """
    fabric_products, full = [], []
    for matrices in split_product(product, full_operands(product)):
        gemm = matrices.gemm()
        tiled = tile_product(gemm, shape, swapped=False if walked else None)
        mapping = choose_mapping(tiled, shape)
        index = build_index(tiled, mapping, shape, direct=product.phase == "input_grad")
        fabric_products.append(FabricProduct(index.descriptor, index.words))
        full.append(tiled)
    return Program(product, fabric_number(shape), tuple(fabric_products), {"full": full})


def lowered(program: Program, shape: FabricShape, walked: bool = False) -> Program:
    """The program itself, or, if it is portable, its product compiled for ``shape`` when it is first asked for."""
    if program.fabric or program.product is None:
        return program
    key = "lowered", fabric_number(shape), walked
    if key not in program.cache:
        program.cache[key] = compile_product(program.product, shape, walked)
    found = program.cache[key]
    assert isinstance(found, Program)
    return found


def bind(program: Program, shape: FabricShape, number: int, matrices: MatrixProduct) -> Bound:
    """Fabric product ``number`` of a program over the operands that it is launched with."""
    fabric_product, full = program.fabric_products[number], _full_products(program, shape)[number]
    gemm, product = _tiled(fabric_product, shape, matrices)
    return Bound(gemm, product, read_mapping(fabric_product, shape).kept_for(full, product, shape))


def read_mapping(fabric_product: FabricProduct, shape: FabricShape) -> Mapping:
    """The mapping that a descriptor and its index encode."""
    descriptor, words = fabric_product.descriptor, fabric_product.index.astype(np.int64)
    owners = words[descriptor.owners_at : descriptor.orders_at]
    if not descriptor.split_k:
        rounds = owners >> 16
        rounds = np.where(rounds == EMPTY_ROUND, -1, rounds)
        return OutputStationaryMapping(descriptor.group_columns, owners & 0xFF, rounds, descriptor.row_tiles, 0.0)
    outputs = owners.reshape(-1, 2)
    first = words[descriptor.orders_at :][: descriptor.column_rounds + 1]
    rounds = np.searchsorted(first, np.arange(len(outputs)), side="right") - 1
    rows, columns = outputs[:, 0] & 0xFFFF, outputs[:, 0] >> 16
    order = np.lexsort((columns, rows))
    split = shape.mesh_columns // descriptor.group_columns
    return SplitKMapping(split, rows[order], columns[order], (outputs[:, 1] & 0xFF)[order], rounds[order], 0.0)


def _full_products(program: Program, shape: FabricShape) -> list[TiledProduct]:
    """The tiled matrix multiplications that a program was compiled from, as full operands give them."""
    if "full" not in program.cache:
        assert program.product is not None
        matrices = split_product(program.product, full_operands(program.product))
        pairs = zip(program.fabric_products, matrices, strict=True)
        program.cache["full"] = [_tiled(each, shape, operands)[1] for each, operands in pairs]
    found = program.cache["full"]
    assert isinstance(found, list)
    return found


def _tiled(fabric_product: FabricProduct, shape: FabricShape, matrices: MatrixProduct) -> tuple[Gemm, TiledProduct]:
    """Zero patterns and tiles of operands, with the mask and the streamed operand that the descriptor says."""
    descriptor = fabric_product.descriptor
    has_mask = descriptor.masked or descriptor.split_k  # split-K lists the output tiles that the mask leaves
    gemm = (matrices if has_mask else matrices.whole()).gemm()
    return gemm, tile_product(gemm, shape, descriptor.swapped)
