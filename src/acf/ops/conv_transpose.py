"""The block-sparse transposed 2-D convolution, of the ops of `acf.ops.conv`: product and input gradient change places.

The weight is that of the convolution from the outputs to the inputs: the packed form of ``[in, kh*kw*out]``. The layer
multiplies by its transpose, which is the convolution's input gradient; its own input gradient is the convolution.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from acf.errors import SparsityError, require_kind
from acf.ops.bias import bias_grad
from acf.ops.conv import block_conv2d_forward, block_conv2d_input_grad, block_conv2d_weight_grad, split_arguments
from acf.ops.differentiate import Dtypes, Layer, SparseProduct, multiply
from acf.ops.geometry import Conv2dGeometry, check_geometry, check_pair
from acf.ops.library import GEOMETRY, TOKEN, TOPOLOGY, Op, differentiable
from acf.ops.observe import observed
from acf.ops.operands import check_layer, check_operands
from acf.ops.reference import grid_cols, grid_rows
from acf.sparse import BlockTopology


def _weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    """The convolution's weight gradient, of which ``x`` is the output gradient and ``output_grad`` the input."""
    return block_conv2d_weight_grad(x, output_grad, *rest, None)


def _fake_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    topology, geometry = split_arguments(rest[:10])
    block_shape = (x.shape[1] // grid_rows(topology), output_grad.shape[1] * geometry.taps // grid_cols(topology))
    return x.new_empty(topology.block_rows.numel(), *block_shape, dtype=rest[10])


block_conv_transpose2d_weight_grad = Op(
    "block_conv_transpose2d_weight_grad",
    f"(Tensor output_grad, Tensor x, {TOPOLOGY}, {GEOMETRY}, ScalarType dtype, {TOKEN}) -> Tensor",
    observed(_weight_grad),  # an op of its own, so that observers get the layer's input as x
    _fake_weight_grad,
)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    """``rest`` is the topology, the convolution's geometry and, last, the output padding."""
    topology, geometry = split_arguments(rest[:10])
    channels = grid_cols(topology) * weight.shape[2] // geometry.taps
    size = transposed_output_size((x.shape[2], x.shape[3]), geometry, rest[10])
    y = block_conv2d_input_grad(x, weight, *topology, [x.shape[0], channels, *size], *rest[6:10])
    return y if bias is None else (y + bias[:, None, None]).to(y.dtype)


def _input_grad(output_grad: Tensor, weight: Tensor, input_size: Sequence[int], rest: tuple[Any, ...]) -> Tensor:
    return block_conv2d_forward(output_grad, weight, None, *rest[:10])


def _weight_grad_op(
    output_grad: Tensor, x: Tensor, rest: tuple[Any, ...], dtype: torch.dtype, token: Tensor | None
) -> Tensor:
    return block_conv_transpose2d_weight_grad(output_grad, x, *rest[:10], dtype, token)


def _parameter_grads(
    output_grad: Tensor, x: Tensor, rest: tuple[Any, ...], dtypes: Dtypes, token: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    weight_dtype, bias_dtype = dtypes
    return (
        None if weight_dtype is None else _weight_grad_op(output_grad, x, rest, weight_dtype, token),
        None if bias_dtype is None else bias_grad(output_grad, bias_dtype),
    )


CONV_TRANSPOSE2D = SparseProduct(_product, _input_grad, _weight_grad_op, _parameter_grads)


def _differentiable_product(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    token = rest[11] if len(rest) > 11 else None
    return multiply(x, weight, bias, Layer(CONV_TRANSPOSE2D, rest[6:11], token), rest[:6])


_block_conv_transpose2d = differentiable(
    "block_conv_transpose2d",
    f"(Tensor x, Tensor weight, Tensor? bias, {TOPOLOGY}, {GEOMETRY}, SymInt[] output_padding, {TOKEN}) -> Tensor",
    _differentiable_product,
)


def transposed_output_size(
    size: tuple[int, int], geometry: Conv2dGeometry, output_padding: Sequence[int]
) -> tuple[int, int]:
    """Height and width that a transposed convolution of ``geometry`` makes of inputs of ``size``."""
    height, width = (
        (size[axis] - 1) * geometry.stride[axis]
        - 2 * geometry.padding[axis]
        + geometry.dilation[axis] * (geometry.kernel_size[axis] - 1)
        + output_padding[axis]
        + 1
        for axis in (0, 1)
    )
    return height, width


def block_conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    topology: BlockTopology,
    geometry: Conv2dGeometry,
    output_padding: tuple[int, int] = (0, 0),
    bias: Tensor | None = None,
    token: Tensor | None = None,
) -> Tensor:
    """Transposed 2-D convolution of ``x [batch, in, h, w]`` with a block-sparse weight: ``[batch, out, oh, ow]``.

    ``weight`` is packed ``[nnz, block_height, block_width]`` of ``[in, kh*kw*out]``, ``bias`` is ``[out]``;
    differentiable in all three. ``geometry`` is that of the convolution whose input gradient is computed, and
    ``output_padding`` is less than its stride. Dtypes and ``token`` are as in `acf.ops.block_linear`.
    """
    check_operands(x, weight, 4, 3)
    check_geometry(geometry)
    check_pair("output_padding", output_padding, 0)
    require_kind(topology, BlockTopology, "topology", "pass a BlockTopology, as BlockTopology.build makes it")
    check_layer(weight, topology, bias, grid_cols(topology) * weight.shape[2] // geometry.taps)
    if x.shape[1] != grid_rows(topology) * weight.shape[1]:
        raise SparsityError(
            f"x has {x.shape[1]} channels, and the layer takes {grid_rows(topology) * weight.shape[1]}; pass "
            "[batch, in, h, w] as the weight has them"
        )
    return _block_conv_transpose2d(x, weight, bias, *topology, *geometry.as_lists(), list(output_padding), token)
