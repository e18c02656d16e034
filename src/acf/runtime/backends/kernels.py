"""Products by the kernels of `acf.ops`, on whatever device the tensors are."""

from collections.abc import Callable

import torch
from torch import Tensor

from acf.ops import reference
from acf.ops.conv import block_conv2d_forward, block_conv2d_input_grad, block_conv2d_weight_grad
from acf.ops.linear import block_linear_forward, block_linear_input_grad, block_linear_weight_grad
from acf.runtime.product import Product, WeightBlocks
from acf.sparse import BlockLayout, BlockTopology
from acf.trace.op import TracedConv

Linear = Callable[[Tensor, Tensor, BlockTopology], Tensor]
Convolution = Callable[[Tensor, Tensor, BlockTopology, TracedConv, list[int]], Tensor]

LINEAR: dict[str, Linear] = {
    "forward": lambda x, weight, topology: block_linear_forward(x, weight, None, *topology),
    "input_grad": lambda gradient, weight, topology: block_linear_input_grad(gradient, weight, *topology),
    "weight_grad": lambda gradient, x, topology: block_linear_weight_grad(gradient, x, *topology, torch.float32, None),
}
DENSE_LINEAR: dict[str, Linear] = {
    "forward": reference.linear,
    "input_grad": reference.linear_input_grad,
    "weight_grad": reference.linear_weight_grad,
}
CONVOLUTION: dict[str, Convolution] = {
    "forward": lambda x, weight, topology, conv, _: block_conv2d_forward(x, weight, None, *topology, *conv.as_lists()),
    "input_grad": lambda gradient, weight, topology, conv, size: block_conv2d_input_grad(
        gradient, weight, *topology, size, *conv.as_lists()
    ),
    "weight_grad": lambda gradient, x, topology, conv, _: block_conv2d_weight_grad(
        gradient, x, *topology, *conv.as_lists(), torch.float32, None
    ),
}
DENSE_CONVOLUTION: dict[str, Convolution] = {
    "forward": lambda x, weight, topology, conv, _: reference.conv2d(x, weight, topology, conv),
    "input_grad": lambda gradient, weight, topology, conv, size: reference.conv2d_input_grad(
        gradient, weight, topology, size, conv
    ),
    "weight_grad": lambda gradient, x, topology, conv, _: reference.conv2d_weight_grad(gradient, x, topology, conv),
}
"""Kernels by phase. A dense weight is one block of its own size, which only the plain products take."""


def build_topology(weight: WeightBlocks, device: torch.device) -> BlockTopology:
    """The index of a weight's blocks that the kernels walk."""
    layout = BlockLayout(weight.rows, weight.columns, *weight.block_shape)
    coordinates = (torch.from_numpy(each).to(device) for each in (weight.block_rows, weight.block_columns))
    return BlockTopology.unchecked(layout, *coordinates)


@torch.no_grad()
def multiply(product: Product, operands: tuple[Tensor, Tensor], topology: BlockTopology) -> Tensor:
    """The result of a product over its operands, which have its shapes and one dtype."""
    is_dense = len(product.weight.block_rows) == 1 and product.weight.is_dense
    if product.conv is None:
        linear = DENSE_LINEAR if is_dense else LINEAR
        return linear[product.phase](*operands, topology)
    convolution = DENSE_CONVOLUTION if is_dense else CONVOLUTION
    return convolution[product.phase](*operands, topology, product.conv, list(product.input_shape))
