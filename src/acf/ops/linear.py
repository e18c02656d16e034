"""The block-sparse linear product and its gradients as custom ops.

The topology travels as its six int32 tensors, so a graph compiled once stays valid while blocks move.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from acf.ops import reference
from acf.ops.bias import bias_grad
from acf.ops.differentiate import Dtypes, Layer, SparseProduct, multiply
from acf.ops.library import TOKEN, TOPOLOGY, Op, differentiable, unchanged
from acf.ops.observe import observed
from acf.ops.operands import check_candidates, check_linear, check_operands, check_tokens
from acf.ops.reference import grid_cols, grid_rows
from acf.sparse import BlockTopology


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, *topology: Tensor) -> Tensor:
    return reference.linear(x, weight, BlockTopology(*topology), bias)


def _fake_product(x: Tensor, weight: Tensor, bias: Tensor | None, *topology: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], grid_rows(BlockTopology(*topology)) * weight.shape[1])


def _input_grad(output_grad: Tensor, weight: Tensor, *topology: Tensor) -> Tensor:
    return reference.linear_input_grad(output_grad, weight, BlockTopology(*topology))


def _fake_input_grad(output_grad: Tensor, weight: Tensor, *topology: Tensor) -> Tensor:
    return output_grad.new_empty(output_grad.shape[0], grid_cols(BlockTopology(*topology)) * weight.shape[2])


def _weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    return reference.linear_weight_grad(output_grad, x, BlockTopology(*rest[:6])).to(rest[6])


def _fake_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    topology = BlockTopology(*rest[:6])
    block_shape = (output_grad.shape[1] // grid_rows(topology), x.shape[1] // grid_cols(topology))
    return x.new_empty(topology.block_rows.numel(), *block_shape, dtype=rest[6])


def _weight_and_bias_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return block_linear_weight_grad(output_grad, x, *rest[:7], *rest[8:]), bias_grad(output_grad, rest[7])


def _fake_weight_and_bias_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _fake_weight_grad(output_grad, x, *rest[:7]), output_grad.new_empty(output_grad.shape[1], dtype=rest[7])


def _gradient_norms(
    output_grad: Tensor, x: Tensor, candidate_rows: Tensor, candidate_cols: Tensor, block_shape: list[int]
) -> Tensor:
    height, width = block_shape
    return reference.gradient_norms(output_grad, x, candidate_rows, candidate_cols, (height, width))


def _fake_gradient_norms(output_grad: Tensor, x: Tensor, candidate_rows: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(candidate_rows.shape[0], dtype=torch.float32)


block_linear_forward = Op(
    "block_linear_forward",
    f"(Tensor x, Tensor weight, Tensor? bias, {TOPOLOGY}) -> Tensor",
    _product,
    _fake_product,
    unchanged,
)
block_linear_input_grad = Op(
    "block_linear_input_grad",
    f"(Tensor output_grad, Tensor weight, {TOPOLOGY}) -> Tensor",
    _input_grad,
    _fake_input_grad,
    unchanged,
)
block_linear_weight_grad = Op(
    "block_linear_weight_grad",
    f"(Tensor output_grad, Tensor x, {TOPOLOGY}, ScalarType dtype, {TOKEN}) -> Tensor",
    observed(_weight_grad),
    _fake_weight_grad,
)
block_linear_weight_and_bias_grad = Op(
    "block_linear_weight_and_bias_grad",
    f"(Tensor output_grad, Tensor x, {TOPOLOGY}, ScalarType dtype, ScalarType bias_dtype, {TOKEN}) -> (Tensor, Tensor)",
    _weight_and_bias_grad,
    _fake_weight_and_bias_grad,
)
linear_gradient_norms = Op(
    "block_gradient_norms",
    "(Tensor output_grad, Tensor x, Tensor candidate_rows, Tensor candidate_cols, SymInt[] block_shape) -> Tensor",
    _gradient_norms,
    _fake_gradient_norms,
)


def parameter_grads(
    output_grad: Tensor, x: Tensor, topology: Sequence[Any], dtypes: Dtypes, token: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of weight and bias in ``dtypes`` (None: not needed), from one pass over ``output_grad`` if it is both.

    Kernels accumulate in float32, so a gradient of a float32 weight beside bfloat16 operands is stored as it is: the
    pass that would cast it, and its rounding, are saved.
    """
    weight_dtype, bias_dtype = dtypes
    output_grad = output_grad.contiguous()
    if weight_dtype is None:
        return None, None if bias_dtype is None else bias_grad(output_grad, bias_dtype)
    if bias_dtype is None:
        return block_linear_weight_grad(output_grad, x, *topology, weight_dtype, token), None
    return block_linear_weight_and_bias_grad(output_grad, x, *topology, weight_dtype, bias_dtype, token)


def _input_grad_op(output_grad: Tensor, weight: Tensor, input_size: Sequence[int], topology: tuple[Any, ...]) -> Tensor:
    return block_linear_input_grad(output_grad.contiguous(), weight, *topology)


def _weight_grad_op(
    output_grad: Tensor, x: Tensor, topology: tuple[Any, ...], dtype: torch.dtype, token: Tensor | None
) -> Tensor:
    return block_linear_weight_grad(output_grad.contiguous(), x, *topology, dtype, token)


LINEAR = SparseProduct(block_linear_forward, _input_grad_op, _weight_grad_op, parameter_grads)


def _differentiable_product(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    return multiply(x, weight, bias, Layer(LINEAR, token=rest[6] if len(rest) > 6 else None), rest[:6])


_block_linear = differentiable(
    "block_linear",
    f"(Tensor x, Tensor weight, Tensor? bias, {TOPOLOGY}, {TOKEN}) -> Tensor",
    _differentiable_product,
)


def block_linear(
    x: Tensor, weight: Tensor, topology: BlockTopology, bias: Tensor | None = None, token: Tensor | None = None
) -> Tensor:
    """``x [..., in]`` times a block-sparse weight, plus ``bias [out]``: ``[..., out]``, differentiable in all three.

    ``weight`` is packed ``[nnz, block_height, block_width]`` of an ``[out, in]`` matrix. Absent blocks cost nothing in
    a sparse kernel and have no gradient. The bias, of any dtype, is added in the epilogue of the kernel. A weight of
    another dtype than ``x`` is cast to that of ``x``; gradients have the dtypes of their parameters. ``token`` is that
    of the layer's `acf.ops.LayerIdentity`, for observers of its weight gradient.
    """
    check_linear(x, weight, topology, bias)
    if x.dim() == 2:
        return _block_linear(x, weight, bias, *topology, token)
    y = _block_linear(x.reshape(-1, x.shape[-1]), weight, bias, *topology, token)
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
    check_operands(output_grad, x, 1, 1)
    check_candidates(candidate_rows, candidate_cols, (output_grad.shape[-1], x.shape[-1]), block_shape)
    output_grad, x = output_grad.reshape(-1, output_grad.shape[-1]), x.reshape(-1, x.shape[-1])
    check_tokens(output_grad, x)
    return linear_gradient_norms(output_grad, x, candidate_rows, candidate_cols, list(block_shape))
