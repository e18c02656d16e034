"""The block-sparse linear product and its gradients as custom ops.

The topology travels as its six int32 tensors, so a graph compiled once stays valid while blocks move.
"""

from typing import Any

import torch
from torch import Tensor

from acf.ops import reference
from acf.ops.observe import notify
from acf.sparse import BlockTopology


@torch.library.custom_op("acf::block_linear", mutates_args=())
def _block_linear(
    x: Tensor,
    weight: Tensor,
    block_rows: Tensor,
    block_cols: Tensor,
    row_offsets: Tensor,
    row_slots: Tensor,
    col_offsets: Tensor,
    col_slots: Tensor,
) -> Tensor:
    topology = BlockTopology(block_rows, block_cols, row_offsets, row_slots, col_offsets, col_slots)
    return reference.linear(x, weight, topology)


@_block_linear.register_fake
def _(x: Tensor, weight: Tensor, *topology: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], (BlockTopology(*topology).row_offsets.numel() - 1) * weight.shape[1])


@torch.library.custom_op("acf::block_linear_input_grad", mutates_args=())
def _block_linear_input_grad(
    output_grad: Tensor,
    weight: Tensor,
    block_rows: Tensor,
    block_cols: Tensor,
    row_offsets: Tensor,
    row_slots: Tensor,
    col_offsets: Tensor,
    col_slots: Tensor,
) -> Tensor:
    topology = BlockTopology(block_rows, block_cols, row_offsets, row_slots, col_offsets, col_slots)
    return reference.linear_input_grad(output_grad, weight, topology)


@_block_linear_input_grad.register_fake
def _(output_grad: Tensor, weight: Tensor, *topology: Tensor) -> Tensor:
    in_features = (BlockTopology(*topology).col_offsets.numel() - 1) * weight.shape[2]
    return output_grad.new_empty(output_grad.shape[0], in_features)


@torch.library.custom_op("acf::block_linear_weight_grad", mutates_args=())
def _block_linear_weight_grad(
    output_grad: Tensor,
    x: Tensor,
    block_rows: Tensor,
    block_cols: Tensor,
    row_offsets: Tensor,
    row_slots: Tensor,
    col_offsets: Tensor,
    col_slots: Tensor,
) -> Tensor:
    topology = BlockTopology(block_rows, block_cols, row_offsets, row_slots, col_offsets, col_slots)
    notify(block_rows, output_grad, x)
    return reference.linear_weight_grad(output_grad, x, topology)


@_block_linear_weight_grad.register_fake
def _(output_grad: Tensor, x: Tensor, *tensors: Tensor) -> Tensor:
    topology = BlockTopology(*tensors)
    return x.new_empty(
        topology.block_rows.numel(),
        output_grad.shape[1] // (topology.row_offsets.numel() - 1),
        x.shape[1] // (topology.col_offsets.numel() - 1),
    )


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, *topology = ctx.saved_tensors
    output_grad = output_grad.contiguous()
    input_grad = weight_grad = None
    if ctx.needs_input_grad[0]:
        input_grad = _block_linear_input_grad(output_grad, weight, *topology)
    if ctx.needs_input_grad[1]:
        weight_grad = _block_linear_weight_grad(output_grad, x, *topology)
    return input_grad, weight_grad, *[None] * 6


_block_linear.register_autograd(_backward, setup_context=_setup_context)


@torch.library.custom_op("acf::block_gradient_norms", mutates_args=())
def _block_gradient_norms(
    output_grad: Tensor, x: Tensor, candidate_rows: Tensor, candidate_cols: Tensor, block_shape: list[int]
) -> Tensor:
    height, width = block_shape
    return reference.gradient_norms(output_grad, x, candidate_rows, candidate_cols, (height, width))


@_block_gradient_norms.register_fake
def _(output_grad: Tensor, x: Tensor, candidate_rows: Tensor, candidate_cols: Tensor, block_shape: list[int]) -> Tensor:
    return x.new_empty(candidate_rows.shape[0], dtype=torch.float32)


def block_linear(x: Tensor, weight: Tensor, topology: BlockTopology) -> Tensor:
    """``x [..., in]`` times a block-sparse weight: ``[..., out]``, differentiable in ``x`` and ``weight``.

    ``weight`` is packed ``[nnz, block_height, block_width]`` of an ``[out, in]`` matrix. Absent blocks cost
    nothing in a sparse kernel and have no gradient.
    """
    tokens = x.reshape(-1, x.shape[-1])
    y: Tensor = _block_linear(tokens, weight, *topology)
    return y.reshape(*x.shape[:-1], y.shape[-1])


def block_gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidate_rows: Tensor,
    candidate_cols: Tensor,
    block_shape: tuple[int, int],
) -> Tensor:
    """Frobenius norms of weight-gradient blocks, float32 ``[candidates]``, without the dense gradient.

    ``output_grad [..., out]`` and ``x [..., in]`` are a layer's operands; block ``c`` of the gradient is at
    ``(candidate_rows[c], candidate_cols[c])`` of the grid that ``block_shape`` (height, width) cuts.
    """
    norms: Tensor = _block_gradient_norms(
        output_grad.reshape(-1, output_grad.shape[-1]),
        x.reshape(-1, x.shape[-1]),
        candidate_rows,
        candidate_cols,
        list(block_shape),
    )
    return norms
