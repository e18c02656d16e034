"""The block-sparse product of a mixture of experts and its gradients as custom ops, one launch for all experts.

Tokens are sorted by expert: the rows ``offsets[e]`` to ``offsets[e + 1]`` of ``x`` belong to expert ``e``. The
weights of all experts are one packed tensor, whose topology is that of the stacked matrix ``[experts * out, in]``
(`BlockLayout.stacked`). Offsets, like the topology, are tensors: a compiled graph stays valid for every routing.
"""

from typing import Any

import torch
from torch import Tensor

from acf.errors import ArgumentError, TopologyError, require_kind
from acf.ops import expert_loop, reference
from acf.ops.differentiate import Dtypes, Layer, SparseProduct, multiply
from acf.ops.library import TOKEN, TOPOLOGY, Op, differentiable
from acf.ops.observe import observed
from acf.ops.operands import check_candidates, check_layer, check_operands, check_tokens
from acf.ops.reference import grid_rows
from acf.sparse import BlockTopology


def _product(x: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
    return expert_loop.linear(x, weight, BlockTopology(*rest[:6]), rest[6], reference.linear)


def _fake_product(x: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], expert_loop.rows_per_expert(BlockTopology(*rest[:6]), rest[6]) * weight.shape[1])


def _input_grad(output_grad: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
    return expert_loop.input_grad(output_grad, weight, BlockTopology(*rest[:6]), rest[6], reference.linear_input_grad)


def _fake_input_grad(output_grad: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
    blocks = expert_loop.cols_per_expert(BlockTopology(*rest[:6]), rest[6])
    return output_grad.new_empty(output_grad.shape[0], blocks * weight.shape[2])


def _weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    topology, offsets, dtype = BlockTopology(*rest[:6]), rest[6], rest[7]
    return expert_loop.weight_grad(output_grad, x, topology, offsets, reference.linear_weight_grad).to(dtype)


def _fake_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    topology, offsets, dtype = BlockTopology(*rest[:6]), rest[6], rest[7]
    height = output_grad.shape[1] // expert_loop.rows_per_expert(topology, offsets)
    width = x.shape[1] // expert_loop.cols_per_expert(topology, offsets)
    return x.new_empty(topology.block_rows.numel(), height, width, dtype=dtype)


def _gradient_norms(
    output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor, offsets: Tensor, block_shape: list[int]
) -> Tensor:
    height, width = block_shape
    return expert_loop.gradient_norms(output_grad, x, (rows, cols), offsets, (height, width), reference.gradient_norms)


def _fake_gradient_norms(output_grad: Tensor, x: Tensor, rows: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(rows.shape[0], dtype=torch.float32)


block_experts_forward = Op(
    "block_experts_forward",
    f"(Tensor x, Tensor weight, {TOPOLOGY}, Tensor offsets) -> Tensor",
    _product,
    _fake_product,
)
block_experts_input_grad = Op(
    "block_experts_input_grad",
    f"(Tensor output_grad, Tensor weight, {TOPOLOGY}, Tensor offsets) -> Tensor",
    _input_grad,
    _fake_input_grad,
)
block_experts_weight_grad = Op(
    "block_experts_weight_grad",
    f"(Tensor output_grad, Tensor x, {TOPOLOGY}, Tensor offsets, ScalarType dtype, {TOKEN}) -> Tensor",
    observed(_weight_grad),
    _fake_weight_grad,
)
experts_gradient_norms = Op(
    "block_experts_gradient_norms",
    "(Tensor output_grad, Tensor x, Tensor candidate_rows, Tensor candidate_cols, Tensor offsets, "
    "SymInt[] block_shape) -> Tensor",
    _gradient_norms,
    _fake_gradient_norms,
)


def _multiply_op(x: Tensor, weight: Tensor, bias: None, *rest: Tensor) -> Tensor:
    return block_experts_forward(x, weight, *rest)


def _input_grad_op(output_grad: Tensor, weight: Tensor, input_size: Any, rest: tuple[Any, ...]) -> Tensor:
    return block_experts_input_grad(output_grad.contiguous(), weight, *rest)


def _weight_grad_op(
    output_grad: Tensor, x: Tensor, rest: tuple[Any, ...], dtype: torch.dtype, token: Tensor | None
) -> Tensor:
    return block_experts_weight_grad(output_grad.contiguous(), x, *rest, dtype, token)


def _parameter_grads(
    output_grad: Tensor, x: Tensor, rest: tuple[Any, ...], dtypes: Dtypes, token: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    return None if dtypes[0] is None else _weight_grad_op(output_grad, x, rest, dtypes[0], token), None


EXPERTS = SparseProduct(_multiply_op, _input_grad_op, _weight_grad_op, _parameter_grads)


def _differentiable_product(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    return multiply(x, weight, None, Layer(EXPERTS, token=rest[7] if len(rest) > 7 else None), rest[:7])


_block_experts = differentiable(
    "block_experts",
    f"(Tensor x, Tensor weight, {TOPOLOGY}, Tensor offsets, {TOKEN}) -> Tensor",
    _differentiable_product,
)


def check_offsets(offsets: Tensor) -> None:
    """Refuse what are no offsets ``[experts + 1]``; their values are the kernels' to read."""
    require_kind(offsets, Tensor, "offsets", "pass a tensor of integers [experts + 1]")
    if offsets.dim() != 1 or offsets.shape[0] < 2 or offsets.dtype not in (torch.int32, torch.int64):
        raise ArgumentError(
            f"offsets are {str(offsets.dtype).removeprefix('torch.')} of shape {list(offsets.shape)}; pass int32 or "
            "int64 [experts + 1], the first row of each expert and then the end of the last"
        )


def block_experts(
    x: Tensor, weight: Tensor, topology: BlockTopology, offsets: Tensor, token: Tensor | None = None
) -> Tensor:
    """``x [tokens, in]``, sorted by expert, times each expert's block-sparse weight: ``[tokens, out]``.

    ``weight`` is packed ``[nnz, block_height, block_width]`` of the stacked matrix ``[experts * out, in]``, and
    ``topology`` that of a layout with ``stacked=experts``. ``offsets`` is int32 or int64 ``[experts + 1]``: the first
    row of each expert, then the end of the last. An expert may have no token; rows past the last offset give zeros.
    Differentiable in ``x`` and ``weight`` like `block_linear`, with the same rules for dtypes.
    """
    check_operands(x, weight, 2, 3)
    check_layer(weight, topology, None)
    check_offsets(offsets)
    if grid_rows(topology) % expert_loop.expert_count(offsets):
        raise TopologyError(
            f"{grid_rows(topology)} block rows are not those of {expert_loop.expert_count(offsets)} experts; give the "
            "first row of each expert, then the number of rows"
        )
    inputs = expert_loop.cols_per_expert(topology, offsets) * weight.shape[2]
    if x.dim() != 2 or x.shape[1] != inputs:
        raise TopologyError(
            f"x is {list(x.shape)} and these experts take [tokens, {inputs}]; flatten all dimensions but the last"
        )
    return _block_experts(x, weight, *topology, offsets, token)


def block_experts_gradient_norms(
    output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor, offsets: Tensor, block_shape: tuple[int, int]
) -> Tensor:
    """`block_gradient_norms` of experts: blocks at ``(rows, cols)`` of the grid of the stacked matrix, float32."""
    check_operands(output_grad, x, 2, 2)
    check_offsets(offsets)
    matrix = (expert_loop.expert_count(offsets) * output_grad.shape[1], x.shape[1])
    check_candidates(rows, cols, matrix, block_shape)
    check_tokens(output_grad, x)
    return experts_gradient_norms(output_grad, x, rows, cols, offsets, list(block_shape))
