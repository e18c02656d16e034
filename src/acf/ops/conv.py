"""The block-sparse 2-D convolution and its gradients as ops of torch.

The weight is the packed form of ``[out, kh*kw*in]`` with input channels innermost
(`acf.sparse.conv_weight_to_matrix`), so one block is consecutive channels at one kernel tap.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from acf.ops import reference
from acf.ops.library import Op, differentiable
from acf.ops.observe import notify
from acf.ops.reference import memory_format_of
from acf.sparse import BlockTopology


@dataclass(frozen=True)
class Conv2dGeometry:
    """Kernel, stride, zero padding and dilation of a 2-D convolution, each ``(vertical, horizontal)``."""

    kernel_size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the output for an input of ``height`` x ``width``."""
        out_height, out_width = (
            (size + 2 * self.padding[axis] - self.dilation[axis] * (self.kernel_size[axis] - 1) - 1)
            // self.stride[axis]
            + 1
            for axis, size in enumerate((height, width))
        )
        return out_height, out_width

    def as_lists(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """The four pairs as lists, the form op schemas take."""
        return list(self.kernel_size), list(self.stride), list(self.padding), list(self.dilation)


def _product(
    x: Tensor,
    weight: Tensor,
    block_rows: Tensor,
    block_cols: Tensor,
    row_offsets: Tensor,
    row_slots: Tensor,
    col_offsets: Tensor,
    col_slots: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Tensor:
    topology = BlockTopology(block_rows, block_cols, row_offsets, row_slots, col_offsets, col_slots)
    return reference.conv2d(x, weight, topology, kernel_size, stride, padding, dilation)


def _fake_product(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    topology, geometry = BlockTopology(*rest[:6]), Conv2dGeometry(*(tuple(pair) for pair in rest[6:]))
    out_channels = (topology.row_offsets.numel() - 1) * weight.shape[1]
    out_height, out_width = geometry.output_size(x.shape[2], x.shape[3])
    return torch.empty(
        (x.shape[0], out_channels, out_height, out_width),
        dtype=x.dtype,
        device=x.device,
        memory_format=memory_format_of(x),
    )


def _input_grad(
    output_grad: Tensor,
    weight: Tensor,
    block_rows: Tensor,
    block_cols: Tensor,
    row_offsets: Tensor,
    row_slots: Tensor,
    col_offsets: Tensor,
    col_slots: Tensor,
    input_size: list[int],
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Tensor:
    topology = BlockTopology(block_rows, block_cols, row_offsets, row_slots, col_offsets, col_slots)
    return reference.conv2d_input_grad(
        output_grad, weight, topology, input_size, kernel_size, stride, padding, dilation
    )


def _fake_input_grad(output_grad: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    return torch.empty(
        rest[6],
        dtype=output_grad.dtype,
        device=output_grad.device,
        memory_format=memory_format_of(output_grad),
    )


def _weight_grad(
    output_grad: Tensor,
    x: Tensor,
    block_rows: Tensor,
    block_cols: Tensor,
    row_offsets: Tensor,
    row_slots: Tensor,
    col_offsets: Tensor,
    col_slots: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Tensor:
    topology = BlockTopology(block_rows, block_cols, row_offsets, row_slots, col_offsets, col_slots)
    notify(block_rows, output_grad, x)
    return reference.conv2d_weight_grad(output_grad, x, topology, kernel_size, stride, padding, dilation)


def _fake_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    topology, kernel_size = BlockTopology(*rest[:6]), rest[6]
    in_columns = x.shape[1] * kernel_size[0] * kernel_size[1]
    return x.new_empty(
        topology.block_rows.numel(),
        output_grad.shape[1] // (topology.row_offsets.numel() - 1),
        in_columns // (topology.col_offsets.numel() - 1),
    )


def _gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block_shape: list[int],
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Tensor:
    height, width = block_shape
    return reference.conv2d_gradient_norms(
        output_grad,
        x,
        candidate_rows,
        candidate_cols,
        (height, width),
        kernel_size,
        stride,
        padding,
        dilation,
    )


def _fake_gradient_norms(output_grad: Tensor, x: Tensor, candidate_rows: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(candidate_rows.shape[0], dtype=torch.float32)


block_conv2d_forward = Op("block_conv2d_forward", _product, _fake_product)
block_conv2d_input_grad = Op("block_conv2d_input_grad", _input_grad, _fake_input_grad)
block_conv2d_weight_grad = Op("block_conv2d_weight_grad", _weight_grad, _fake_weight_grad)
conv2d_gradient_norms = Op("block_conv2d_gradient_norms", _gradient_norms, _fake_gradient_norms)


class _BlockConv2d(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, rest: tuple[Any, ...]) -> Tensor:
        ctx.save_for_backward(x, weight, *rest[:6])
        ctx.geometry = rest[6:]
        return block_conv2d_forward(x, weight, *rest)

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
        return (_gradients_once if torch.is_grad_enabled() else _gradients)(ctx, output_grad)


def _gradients(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, *topology = ctx.saved_tensors
    input_grad = weight_grad = None
    if ctx.needs_input_grad[0]:
        input_grad = block_conv2d_input_grad(output_grad, weight, *topology, list(x.shape), *ctx.geometry)
    if ctx.needs_input_grad[1]:
        weight_grad = block_conv2d_weight_grad(output_grad, x, *topology, *ctx.geometry)
    return input_grad, weight_grad, None


_gradients_once = once_differentiable(_gradients)  # refuses second derivatives; costs more than it is worth otherwise


def _differentiable_product(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        y: Tensor = _BlockConv2d.apply(x, weight, rest)  # type: ignore[no-untyped-call]
        return y
    return block_conv2d_forward(x, weight, *rest)


_block_conv2d = differentiable("block_conv2d", block_conv2d_forward.schema, _differentiable_product)


def block_conv2d(x: Tensor, weight: Tensor, topology: BlockTopology, geometry: Conv2dGeometry) -> Tensor:
    """2-D convolution of ``x [batch, in, h, w]`` with a block-sparse weight: ``[batch, out, oh, ow]``.

    ``weight`` is packed ``[nnz, block_height, block_width]``; differentiable in ``x`` and ``weight``.
    """
    return _block_conv2d(x, weight, *topology, *geometry.as_lists())


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
