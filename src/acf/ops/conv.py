"""The block-sparse 2-D convolution and its gradients as custom ops.

The weight is the packed form of ``[out, kh*kw*in]`` with input channels innermost
(`acf.sparse.conv_weight_to_matrix`), so one block is consecutive channels at one kernel tap.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from acf.ops import reference
from acf.ops.bias import bias_grad
from acf.ops.geometry import Conv2dGeometry
from acf.ops.library import GEOMETRY, TOPOLOGY, Op, differentiable
from acf.ops.observe import notify
from acf.ops.reference import grid_cols, grid_rows, memory_format_of
from acf.sparse import BlockTopology


def split_arguments(arguments: Sequence[Any]) -> tuple[BlockTopology, Conv2dGeometry]:
    """The topology's six tensors and the geometry's four pairs, as the ops pass them, as one object each."""
    return BlockTopology(*arguments[:6]), Conv2dGeometry.from_lists(*arguments[6:])


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    return reference.conv2d(x, weight, *split_arguments(rest), bias)


def _fake_product(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    topology, geometry = split_arguments(rest)
    shape = (x.shape[0], grid_rows(topology) * weight.shape[1], *geometry.output_size(x.shape[2], x.shape[3]))
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=memory_format_of(x))


def _input_grad(output_grad: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    topology, geometry = split_arguments((*rest[:6], *rest[7:]))
    return reference.conv2d_input_grad(output_grad, weight, topology, rest[6], geometry)


def _fake_input_grad(output_grad: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    memory_format = memory_format_of(output_grad)
    return torch.empty(rest[6], dtype=output_grad.dtype, device=output_grad.device, memory_format=memory_format)


def _weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    *arguments, dtype = rest
    topology, geometry = split_arguments(arguments)
    notify(topology.block_rows, output_grad, x)
    return reference.conv2d_weight_grad(output_grad, x, topology, geometry).to(dtype)


def _fake_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    *arguments, dtype = rest
    topology, geometry = split_arguments(arguments)
    block_shape = (
        output_grad.shape[1] // grid_rows(topology),
        x.shape[1] * geometry.taps // grid_cols(topology),
    )
    return x.new_empty(topology.block_rows.numel(), *block_shape, dtype=dtype)


def _gradient_norms(output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor, *rest: Any) -> Tensor:
    geometry = Conv2dGeometry.from_lists(*rest[1:])
    return reference.conv2d_gradient_norms(output_grad, x, rows, cols, tuple(rest[0]), geometry)


def _fake_gradient_norms(output_grad: Tensor, x: Tensor, candidate_rows: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(candidate_rows.shape[0], dtype=torch.float32)


block_conv2d_forward = Op(
    "block_conv2d_forward",
    f"(Tensor x, Tensor weight, Tensor? bias, {TOPOLOGY}, {GEOMETRY}) -> Tensor",
    _product,
    _fake_product,
)
block_conv2d_input_grad = Op(
    "block_conv2d_input_grad",
    f"(Tensor output_grad, Tensor weight, {TOPOLOGY}, SymInt[] input_size, {GEOMETRY}) -> Tensor",
    _input_grad,
    _fake_input_grad,
)
block_conv2d_weight_grad = Op(
    "block_conv2d_weight_grad",
    f"(Tensor output_grad, Tensor x, {TOPOLOGY}, {GEOMETRY}, ScalarType dtype) -> Tensor",
    _weight_grad,
    _fake_weight_grad,
)
conv2d_gradient_norms = Op(
    "block_conv2d_gradient_norms",
    "(Tensor output_grad, Tensor x, Tensor candidate_rows, Tensor candidate_cols, SymInt[] block_shape, "
    f"{GEOMETRY}) -> Tensor",
    _gradient_norms,
    _fake_gradient_norms,
)


class _BlockConv2d(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, rest: tuple[Any, ...]) -> Tensor:
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        weight = weight.to(x.dtype)
        ctx.save_for_backward(x, weight, *rest[:6])
        ctx.geometry = rest[6:]
        return block_conv2d_forward(x, weight, bias, *rest)

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
        return (_gradients_once if torch.is_grad_enabled() else _gradients)(ctx, output_grad)


def _gradients(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, *topology = ctx.saved_tensors
    input_grad = weight_grad = None
    if ctx.needs_input_grad[0]:
        input_grad = block_conv2d_input_grad(output_grad, weight, *topology, list(x.shape), *ctx.geometry)
    if ctx.needs_input_grad[1]:
        weight_grad = block_conv2d_weight_grad(output_grad, x, *topology, *ctx.geometry, ctx.dtypes[0])
    return input_grad, weight_grad, bias_grad(output_grad, ctx.dtypes[1]) if ctx.needs_input_grad[2] else None, None


_gradients_once = once_differentiable(_gradients)  # as in `acf.ops.linear`


def _differentiable_product(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    trained = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    if trained and torch.is_grad_enabled():
        y: Tensor = _BlockConv2d.apply(x, weight, bias, rest)  # type: ignore[no-untyped-call]
        return y
    return block_conv2d_forward(x, weight.to(x.dtype), bias, *rest)


_block_conv2d = differentiable("block_conv2d", block_conv2d_forward.schema, _differentiable_product)


def block_conv2d(
    x: Tensor, weight: Tensor, topology: BlockTopology, geometry: Conv2dGeometry, bias: Tensor | None = None
) -> Tensor:
    """2-D convolution of ``x [batch, in, h, w]`` with a block-sparse weight, plus ``bias``: ``[batch, out, oh, ow]``.

    ``weight`` is packed ``[nnz, block_height, block_width]``, ``bias`` is ``[out]``; differentiable in all three.
    Dtypes are as in `acf.ops.block_linear`.
    """
    return _block_conv2d(x, weight, bias, *topology, *geometry.as_lists())


def block_conv2d_gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block_shape: tuple[int, int],
    geometry: Conv2dGeometry,
) -> Tensor:
    """`block_gradient_norms` for a convolution with ``x [batch, in, h, w]`` and its output gradient."""
    return conv2d_gradient_norms(
        output_grad, x, candidate_rows, candidate_cols, list(block_shape), *geometry.as_lists()
    )
