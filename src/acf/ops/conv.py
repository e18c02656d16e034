"""The block-sparse 2-D convolution and its gradients as custom ops.

The weight is the packed form of ``[out, kh*kw*in]`` with input channels innermost
(`acf.sparse.conv_weight_to_matrix`), so one block is consecutive channels at one kernel tap.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from acf.errors import SparsityError
from acf.ops import reference
from acf.ops.bias import bias_grad
from acf.ops.differentiate import Dtypes, Layer, SparseProduct, multiply
from acf.ops.geometry import Conv2dGeometry, check_geometry
from acf.ops.library import GEOMETRY, TOKEN, TOPOLOGY, Op, differentiable, unchanged
from acf.ops.observe import observed
from acf.ops.operands import check_candidates, check_layer, check_operands, check_tokens
from acf.ops.reference import grid_cols, grid_rows, memory_format_of
from acf.sparse import BlockTopology


def split_arguments(arguments: Sequence[Any]) -> tuple[BlockTopology, Conv2dGeometry]:
    """The topology's six tensors and the geometry's four pairs, as the ops pass them, as one object each."""
    return BlockTopology(*arguments[:6]), Conv2dGeometry.from_lists(*arguments[6:])


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    return reference.conv2d(x, weight, *split_arguments(rest), bias)


def fake_conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    """An output of the shape and memory format of the convolution's, without values."""
    topology, geometry = split_arguments(rest)
    shape = (x.shape[0], grid_rows(topology) * weight.shape[1], *geometry.output_size(x.shape[2], x.shape[3]))
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=memory_format_of(x))


def _input_grad(output_grad: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    topology, geometry = split_arguments((*rest[:6], *rest[7:]))
    return reference.conv2d_input_grad(output_grad, weight, topology, rest[6], geometry)


def _fake_input_grad(output_grad: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    memory_format = memory_format_of(output_grad)
    return torch.empty(rest[6], dtype=output_grad.dtype, device=output_grad.device, memory_format=memory_format)


def _with_more_images(args: tuple[Any, ...], batch_size: int) -> tuple[Any, ...]:
    """The arguments of the input gradient after ``output_grad``, for ``batch_size`` times the images."""
    weight, *topology, (images, *size) = args[:8]
    return weight, *topology, [images * batch_size, *size], *args[8:]


def _weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    return reference.conv2d_weight_grad(output_grad, x, *split_arguments(rest[:10])).to(rest[10])


def _fake_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    topology, geometry = split_arguments(rest[:10])
    block_shape = (
        output_grad.shape[1] // grid_rows(topology),
        x.shape[1] * geometry.taps // grid_cols(topology),
    )
    return x.new_empty(topology.block_rows.numel(), *block_shape, dtype=rest[10])


def _gradient_norms(output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor, *rest: Any) -> Tensor:
    geometry = Conv2dGeometry.from_lists(*rest[1:])
    return reference.conv2d_gradient_norms(output_grad, x, rows, cols, tuple(rest[0]), geometry)


def _fake_gradient_norms(output_grad: Tensor, x: Tensor, candidate_rows: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(candidate_rows.shape[0], dtype=torch.float32)


block_conv2d_forward = Op(
    "block_conv2d_forward",
    f"(Tensor x, Tensor weight, Tensor? bias, {TOPOLOGY}, {GEOMETRY}) -> Tensor",
    _product,
    fake_conv2d,
    unchanged,
)
block_conv2d_input_grad = Op(
    "block_conv2d_input_grad",
    f"(Tensor output_grad, Tensor weight, {TOPOLOGY}, SymInt[] input_size, {GEOMETRY}) -> Tensor",
    _input_grad,
    _fake_input_grad,
    _with_more_images,
)
block_conv2d_weight_grad = Op(
    "block_conv2d_weight_grad",
    f"(Tensor output_grad, Tensor x, {TOPOLOGY}, {GEOMETRY}, ScalarType dtype, {TOKEN}) -> Tensor",
    observed(_weight_grad),
    _fake_weight_grad,
)
conv2d_gradient_norms = Op(
    "block_conv2d_gradient_norms",
    "(Tensor output_grad, Tensor x, Tensor candidate_rows, Tensor candidate_cols, SymInt[] block_shape, "
    f"{GEOMETRY}) -> Tensor",
    _gradient_norms,
    _fake_gradient_norms,
)


def _input_grad_op(output_grad: Tensor, weight: Tensor, input_size: Sequence[int], rest: tuple[Any, ...]) -> Tensor:
    return block_conv2d_input_grad(output_grad, weight, *rest[:6], list(input_size), *rest[6:])


def _weight_grad_op(
    output_grad: Tensor, x: Tensor, rest: tuple[Any, ...], dtype: torch.dtype, token: Tensor | None
) -> Tensor:
    return block_conv2d_weight_grad(output_grad, x, *rest, dtype, token)


def _parameter_grads(
    output_grad: Tensor, x: Tensor, rest: tuple[Any, ...], dtypes: Dtypes, token: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    weight_dtype, bias_dtype = dtypes
    return (
        None if weight_dtype is None else block_conv2d_weight_grad(output_grad, x, *rest, weight_dtype, token),
        None if bias_dtype is None else bias_grad(output_grad, bias_dtype),
    )


CONV2D = SparseProduct(block_conv2d_forward, _input_grad_op, _weight_grad_op, _parameter_grads)


def _differentiable_product(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    token = rest[10] if len(rest) > 10 else None
    return multiply(x, weight, bias, Layer(CONV2D, rest[6:10], token), rest[:6])


_block_conv2d = differentiable(
    "block_conv2d",
    f"(Tensor x, Tensor weight, Tensor? bias, {TOPOLOGY}, {GEOMETRY}, {TOKEN}) -> Tensor",
    _differentiable_product,
)


def check_conv2d(
    x: Tensor, weight: Tensor, topology: BlockTopology, geometry: Conv2dGeometry, bias: Tensor | None
) -> None:
    """Refuse what is no convolution, and an ``x`` that is not ``[batch, in, h, w]``."""
    check_operands(x, weight, 4, 3)
    check_layer(weight, topology, bias)
    check_geometry(geometry)
    columns = grid_cols(topology) * weight.shape[2]
    if x.shape[1] * geometry.taps != columns:
        raise SparsityError(
            f"x has {x.shape[1]} channels, and at {geometry.taps} taps the layer takes {columns / geometry.taps:g}; "
            "pass [batch, in, h, w] as the weight has them, and its geometry"
        )


def block_conv2d(
    x: Tensor,
    weight: Tensor,
    topology: BlockTopology,
    geometry: Conv2dGeometry,
    bias: Tensor | None = None,
    token: Tensor | None = None,
) -> Tensor:
    """2-D convolution of ``x [batch, in, h, w]`` with a block-sparse weight, plus ``bias``: ``[batch, out, oh, ow]``.

    ``weight`` is packed ``[nnz, block_height, block_width]``, ``bias`` is ``[out]``; differentiable in all three.
    Dtypes and ``token`` are as in `acf.ops.block_linear`.
    """
    check_conv2d(x, weight, topology, geometry, bias)
    return _block_conv2d(x, weight, bias, *topology, *geometry.as_lists(), token)


def block_conv2d_gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block_shape: tuple[int, int],
    geometry: Conv2dGeometry,
) -> Tensor:
    """`block_gradient_norms` for a convolution with ``x [batch, in, h, w]`` and its output gradient."""
    check_operands(output_grad, x, 4, 4)
    check_geometry(geometry)
    matrix = (output_grad.shape[1], x.shape[1] * geometry.taps)
    check_candidates(candidate_rows, candidate_cols, matrix, block_shape)
    check_tokens(output_grad, x)
    return conv2d_gradient_norms(
        output_grad, x, candidate_rows, candidate_cols, list(block_shape), *geometry.as_lists()
    )
