"""CPU kernels of a mixture of experts: the native kernels of linear layers, one expert after the other."""

from typing import Any

from torch import Tensor

from acf.ops import expert_loop
from acf.ops.cpu import kernels
from acf.sparse import BlockTopology


def block_experts(x: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
    """CPU kernel of ``acf::block_experts_forward``."""
    return expert_loop.linear(x, weight, BlockTopology(*rest[:6]), rest[6], _linear)


def block_experts_input_grad(output_grad: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
    """CPU kernel of ``acf::block_experts_input_grad``."""
    return expert_loop.input_grad(output_grad, weight, BlockTopology(*rest[:6]), rest[6], _input_grad)


def block_experts_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    """CPU kernel of ``acf::block_experts_weight_grad``."""
    return expert_loop.weight_grad(output_grad, x, BlockTopology(*rest[:6]), rest[6], _weight_grad).to(rest[7])


def block_experts_gradient_norms(
    output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor, offsets: Tensor, block_shape: list[int]
) -> Tensor:
    """CPU kernel of ``acf::block_experts_gradient_norms``."""
    height, width = block_shape
    return expert_loop.gradient_norms(output_grad, x, (rows, cols), offsets, (height, width), _norms)


def _linear(x: Tensor, weight: Tensor, topology: BlockTopology) -> Tensor:
    return kernels.block_linear(x, weight, None, *topology)


def _input_grad(output_grad: Tensor, weight: Tensor, topology: BlockTopology) -> Tensor:
    return kernels.block_linear_input_grad(output_grad, weight, *topology)


def _weight_grad(output_grad: Tensor, x: Tensor, topology: BlockTopology) -> Tensor:
    return kernels.block_linear_weight_grad(output_grad, x, *topology, x.dtype)


def _norms(output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor, block_shape: tuple[int, int]) -> Tensor:
    return kernels.block_gradient_norms(output_grad, x, rows, cols, list(block_shape))
