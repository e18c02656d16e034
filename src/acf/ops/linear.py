"""The block-sparse linear product and its gradients as ops of torch.

The topology travels as its six int32 tensors, so a graph compiled once stays valid while blocks move.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from acf.ops import reference
from acf.ops.library import Op, differentiable
from acf.ops.observe import notify
from acf.sparse import BlockTopology


def _product(
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


def _fake_product(x: Tensor, weight: Tensor, *topology: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], (BlockTopology(*topology).row_offsets.numel() - 1) * weight.shape[1])


def _input_grad(
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


def _fake_input_grad(output_grad: Tensor, weight: Tensor, *topology: Tensor) -> Tensor:
    in_features = (BlockTopology(*topology).col_offsets.numel() - 1) * weight.shape[2]
    return output_grad.new_empty(output_grad.shape[0], in_features)


def _weight_grad(
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


def _fake_weight_grad(output_grad: Tensor, x: Tensor, *tensors: Tensor) -> Tensor:
    topology = BlockTopology(*tensors)
    return x.new_empty(
        topology.block_rows.numel(),
        output_grad.shape[1] // (topology.row_offsets.numel() - 1),
        x.shape[1] // (topology.col_offsets.numel() - 1),
    )


def _gradient_norms(
    output_grad: Tensor, x: Tensor, candidate_rows: Tensor, candidate_cols: Tensor, block_shape: list[int]
) -> Tensor:
    height, width = block_shape
    return reference.gradient_norms(output_grad, x, candidate_rows, candidate_cols, (height, width))


def _fake_gradient_norms(
    output_grad: Tensor, x: Tensor, candidate_rows: Tensor, candidate_cols: Tensor, block_shape: list[int]
) -> Tensor:
    return x.new_empty(candidate_rows.shape[0], dtype=torch.float32)


block_linear_forward = Op("block_linear_forward", _product, _fake_product)
block_linear_input_grad = Op("block_linear_input_grad", _input_grad, _fake_input_grad)
block_linear_weight_grad = Op("block_linear_weight_grad", _weight_grad, _fake_weight_grad)
linear_gradient_norms = Op("block_gradient_norms", _gradient_norms, _fake_gradient_norms)


class _BlockLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, topology: tuple[Tensor, ...]) -> Tensor:
        ctx.save_for_backward(x, weight, *topology)
        return block_linear_forward(x, weight, *topology)

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
        return (_gradients_once if torch.is_grad_enabled() else _gradients)(ctx, output_grad)


def _gradients(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, *topology = ctx.saved_tensors
    output_grad = output_grad.contiguous()
    needs_input_grad, needs_weight_grad, _ = ctx.needs_input_grad
    input_grad = block_linear_input_grad(output_grad, weight, *topology) if needs_input_grad else None
    weight_grad = block_linear_weight_grad(output_grad, x, *topology) if needs_weight_grad else None
    return input_grad, weight_grad, None


_gradients_once = once_differentiable(_gradients)  # refuses second derivatives; costs more than it is worth otherwise


def _differentiable_product(x: Tensor, weight: Tensor, *topology: Tensor) -> Tensor:
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        y: Tensor = _BlockLinear.apply(x, weight, topology)  # type: ignore[no-untyped-call]
        return y
    return block_linear_forward(x, weight, *topology)


_block_linear = differentiable("block_linear", block_linear_forward.schema, _differentiable_product)


def block_linear(x: Tensor, weight: Tensor, topology: BlockTopology) -> Tensor:
    """``x [..., in]`` times a block-sparse weight: ``[..., out]``, differentiable in ``x`` and ``weight``.

    ``weight`` is packed ``[nnz, block_height, block_width]`` of an ``[out, in]`` matrix. Absent blocks cost
    nothing in a sparse kernel and have no gradient.
    """
    if x.dim() == 2:
        return _block_linear(x, weight, *topology)
    y = _block_linear(x.reshape(-1, x.shape[-1]), weight, *topology)
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
    return linear_gradient_norms(
        output_grad.reshape(-1, output_grad.shape[-1]),
        x.reshape(-1, x.shape[-1]),
        candidate_rows,
        candidate_cols,
        list(block_shape),
    )
