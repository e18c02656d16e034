"""The block-sparse 2-D convolution and its gradients as custom ops.

The weight is the packed form of ``[out, kh*kw*in]`` with input channels innermost
(`acf.sparse.conv_weight_to_matrix`), so one block is consecutive channels at one kernel tap.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from acf.ops import reference
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


@torch.library.custom_op("acf::block_conv2d", mutates_args=())
def _block_conv2d(
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


@_block_conv2d.register_fake
def _(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    topology, geometry = BlockTopology(*rest[:6]), Conv2dGeometry(*(tuple(pair) for pair in rest[6:]))
    out_channels = (topology.row_offsets.numel() - 1) * weight.shape[1]
    out_height, out_width = geometry.output_size(x.shape[2], x.shape[3])
    return torch.empty(
        (x.shape[0], out_channels, out_height, out_width),
        dtype=x.dtype,
        device=x.device,
        memory_format=memory_format_of(x),
    )


@torch.library.custom_op("acf::block_conv2d_input_grad", mutates_args=())
def _block_conv2d_input_grad(
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


@_block_conv2d_input_grad.register_fake
def _(output_grad: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    return torch.empty(
        rest[6],
        dtype=output_grad.dtype,
        device=output_grad.device,
        memory_format=memory_format_of(output_grad),
    )


@torch.library.custom_op("acf::block_conv2d_weight_grad", mutates_args=())
def _block_conv2d_weight_grad(
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


@_block_conv2d_weight_grad.register_fake
def _(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    topology, kernel_size = BlockTopology(*rest[:6]), rest[6]
    in_columns = x.shape[1] * kernel_size[0] * kernel_size[1]
    return x.new_empty(
        topology.block_rows.numel(),
        output_grad.shape[1] // (topology.row_offsets.numel() - 1),
        in_columns // (topology.col_offsets.numel() - 1),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:8])
    ctx.geometry = inputs[8:]


def _backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, *topology = ctx.saved_tensors
    input_grad = weight_grad = None
    if ctx.needs_input_grad[0]:
        input_grad = _block_conv2d_input_grad(output_grad, weight, *topology, list(x.shape), *ctx.geometry)
    if ctx.needs_input_grad[1]:
        weight_grad = _block_conv2d_weight_grad(output_grad, x, *topology, *ctx.geometry)
    return input_grad, weight_grad, *[None] * 10


_block_conv2d.register_autograd(_backward, setup_context=_setup_context)


@torch.library.custom_op("acf::block_conv2d_gradient_norms", mutates_args=())
def _block_conv2d_gradient_norms(
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


@_block_conv2d_gradient_norms.register_fake
def _(output_grad: Tensor, x: Tensor, candidate_rows: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(candidate_rows.shape[0], dtype=torch.float32)


def block_conv2d(x: Tensor, weight: Tensor, topology: BlockTopology, geometry: Conv2dGeometry) -> Tensor:
    """2-D convolution of ``x [batch, in, h, w]`` with a block-sparse weight: ``[batch, out, oh, ow]``.

    ``weight`` is packed ``[nnz, block_height, block_width]``; differentiable in ``x`` and ``weight``.
    """
    y: Tensor = _block_conv2d(x, weight, *topology, *geometry.as_lists())
    return y


def block_conv2d_gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block_shape: tuple[int, int],
    geometry: Conv2dGeometry,
) -> Tensor:
    """`block_gradient_norms` for a convolution with ``x [batch, in, h, w]`` and its output gradient."""
    norms: Tensor = _block_conv2d_gradient_norms(
        output_grad, x, candidate_rows, candidate_cols, list(block_shape), *geometry.as_lists()
    )
    return norms
