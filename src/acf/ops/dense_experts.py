"""The dense product of a mixture of experts and its weight gradient as custom ops, so that compiled code keeps both.

As in `experts`, the rows ``offsets[e]`` to ``offsets[e + 1]`` of ``x`` belong to expert ``e``, and rows past the last
offset to none. The gradient of ``x`` is the same product with transposed weights.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from acf.errors import ArgumentError
from acf.ops.differentiate import Dtypes, Layer, SparseProduct, multiply
from acf.ops.expert_loop import expert_count, token_bounds
from acf.ops.experts import check_offsets
from acf.ops.library import Op, differentiable
from acf.ops.operands import check_operands


def host_bounds(x: Tensor, offsets: Tensor) -> list[int]:
    """The offsets on the host, where the loop over experts needs them; refused while a CUDA graph is captured."""
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        raise ArgumentError(
            "dense experts need their token counts on the host, for which a CUDA graph cannot wait; make them "
            "block-sparse with acf.sparsify_ (sparsity=0 keeps every block), or run the step without a graph"
        )
    return token_bounds(offsets, x.shape[0])


def _product(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    y = x.new_empty(x.shape[0], weight.shape[1])
    bounds = host_bounds(x, offsets)
    for expert, (first, last) in enumerate(pairwise(bounds)):
        if first < last:
            torch.mm(x[first:last], weight[expert].T, out=y[first:last])
    y[bounds[-1] :] = 0
    return y


def _fake_product(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


def _weight_grad(output_grad: Tensor, x: Tensor, offsets: Tensor, dtype: torch.dtype) -> Tensor:
    gradient = x.new_empty(expert_count(offsets), output_grad.shape[1], x.shape[1], dtype=dtype)
    for expert, (first, last) in enumerate(pairwise(host_bounds(x, offsets))):
        if first < last:
            gradient[expert] = output_grad[first:last].T @ x[first:last]
        else:
            gradient[expert] = 0
    return gradient


def _fake_weight_grad(output_grad: Tensor, x: Tensor, offsets: Tensor, dtype: torch.dtype) -> Tensor:
    return x.new_empty(expert_count(offsets), output_grad.shape[1], x.shape[1], dtype=dtype)


dense_experts_forward = Op(
    "dense_experts_forward", "(Tensor x, Tensor weight, Tensor offsets) -> Tensor", _product, _fake_product
)
dense_experts_weight_grad = Op(
    "dense_experts_weight_grad",
    "(Tensor output_grad, Tensor x, Tensor offsets, ScalarType dtype) -> Tensor",
    _weight_grad,
    _fake_weight_grad,
)


def _multiply_op(x: Tensor, weight: Tensor, bias: None, offsets: Tensor) -> Tensor:
    return dense_experts_forward(x, weight, offsets)


def _input_grad_op(output_grad: Tensor, weight: Tensor, input_size: Sequence[int], rest: tuple[Any, ...]) -> Tensor:
    return dense_experts_forward(output_grad, weight.transpose(1, 2), *rest)


def _weight_grad_op(
    output_grad: Tensor, x: Tensor, rest: tuple[Any, ...], dtype: torch.dtype, token: Tensor | None
) -> Tensor:
    return dense_experts_weight_grad(output_grad, x, *rest, dtype)


def _parameter_grads(
    output_grad: Tensor, x: Tensor, rest: tuple[Any, ...], dtypes: Dtypes, token: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    return None if dtypes[0] is None else _weight_grad_op(output_grad, x, rest, dtypes[0], token), None


DENSE_EXPERTS = Layer(SparseProduct(_multiply_op, _input_grad_op, _weight_grad_op, _parameter_grads))


def _differentiable_product(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    return multiply(x, weight, None, DENSE_EXPERTS, (offsets,))


_dense_experts = differentiable(
    "dense_experts", "(Tensor x, Tensor weight, Tensor offsets) -> Tensor", _differentiable_product
)


def dense_experts(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """``x [tokens, in]``, sorted by expert, times each expert's weight of ``weight [experts, out, in]``.

    ``offsets`` is int32 or int64 ``[experts + 1]``. Gives ``[tokens, out]``, zeros in rows past the last offset.
    Differentiable in ``x`` and ``weight``, which is cast to the dtype of ``x``. Experts are computed one after the
    other; on a GPU that waits for the offsets.
    """
    check_operands(x, weight, 2, 3)
    check_offsets(offsets)
    fits = x.dim() == 2 and weight.dim() == 3 and x.shape[1] == weight.shape[2]
    if not fits or weight.shape[0] != expert_count(offsets):
        raise ArgumentError(
            f"x {list(x.shape)}, weight {list(weight.shape)} and {offsets.shape[0]} offsets do not belong together; "
            "pass [tokens, in], [experts, out, in] and [experts + 1]"
        )
    return _dense_experts(x, weight, offsets)
