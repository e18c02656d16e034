"""Products and launches for the tests of this folder."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from acf import runtime
from acf.lowering import FabricShape
from acf.lowering.mapping import Mapping
from acf.lowering.product_index import build_index
from acf.lowering.tiled_product import TiledProduct, tile_product
from acf.runtime.matrices import full_operands, split_product
from acf.runtime.program import FabricProduct, fabric_number
from acf.trace.op import TracedConv

Values = NDArray[np.float32]

SPARSE = runtime.WeightBlocks.from_mask([[True, False, True], [False, True, True]], (8, 8))
STRIDED = TracedConv(input_size=(5, 4), kernel_size=(3, 2), stride=(2, 1), padding=(1, 0))
FILTERS = runtime.WeightBlocks.from_mask(np.arange(24).reshape(2, 12) % 3 > 0, (8, 4))
"""Of 16 output channels and 8 input channels, for `STRIDED`."""


def mapped_program(
    product: runtime.Product, shape: FabricShape, mapped: Callable[[TiledProduct], Mapping]
) -> runtime.Program:
    """A program of one matrix multiplication, its left operand streamed, under the mapping that ``mapped`` gives it."""
    (matrices,) = split_product(product, full_operands(product))
    tiled = tile_product(matrices.gemm(), shape, swapped=False)
    index = build_index(tiled, mapped(tiled), shape)
    return runtime.Program(product, fabric_number(shape), (FabricProduct(index.descriptor, index.words),))


def random_operands(program: runtime.Program, seed: int = 0) -> list[Values]:
    """Operands of a program; about half of the activations are zero."""
    rng = np.random.default_rng(seed)
    drawn = [rng.standard_normal(argument.shape).astype(np.float32) for argument in program.arguments[:2]]
    return [
        np.maximum(values, 0) if argument.name == "x" else values
        for argument, values in zip(program.arguments, drawn, strict=False)
    ]


def run(device: runtime.Device, program: runtime.Program, operands: Sequence[Values]) -> Values:
    """Upload, launch, download."""
    assert program.product is not None
    result = program.arguments[-1]
    buffers = [device.upload(each, program.product.operand_dtype) for each in operands]
    buffers.append(device.malloc(result.nbytes))
    runtime.launch(program, buffers)
    values = device.download(buffers[-1], result.shape, result.dtype)
    for buffer in buffers:
        buffer.free()
    return values
