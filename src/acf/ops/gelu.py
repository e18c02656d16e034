"""Two block-sparse linear layers with a GELU between them, as custom ops.

The first product stores the GELU's value and slope instead of its own result. In the backward pass the second layer's
input gradient is multiplied by that slope. On a GPU both happen in the epilogues of the products; large products in
bfloat16 keep the slope as bytes, in the order of the threads that write and read it.
"""

from importlib.util import find_spec
from math import pi, sqrt
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from acf.ops.library import TOPOLOGY, Op, differentiable
from acf.ops.linear import (
    block_linear_forward,
    block_linear_input_grad,
    block_linear_weight_grad,
    parameter_grads,
)
from acf.ops.reference import grid_cols, grid_rows
from acf.sparse import BlockTopology


def linear_then_gelu(
    x: Tensor, weight: Tensor, bias: Tensor | None, packed: bool, *topology: Tensor
) -> tuple[Tensor, Tensor]:
    """GELU of the product ``[tokens, out]``, and its slope there; ``packed`` is for kernels that `packs_slopes`."""
    if packed:
        raise ValueError("slopes are packed by a GPU kernel only; call with packed=False")
    hidden = block_linear_forward(x, weight, None, *topology)
    wide = hidden if hidden.dtype == torch.float64 else hidden.float()
    if bias is not None:
        wide = wide + bias
    cumulative = 0.5 + 0.5 * torch.erf(wide / sqrt(2))
    density = torch.exp(-0.5 * wide * wide) / sqrt(2 * pi)
    return (wide * cumulative).to(x.dtype), (cumulative + wide * density).to(x.dtype)


def _fake_linear_gelu(
    x: Tensor, weight: Tensor, bias: Tensor | None, packed: bool, *topology: Tensor
) -> tuple[Tensor, Tensor]:
    shape = (x.shape[0], grid_rows(BlockTopology(*topology)) * weight.shape[1])
    return x.new_empty(shape), packed_slopes(x, shape[1], weight.shape[1]) if packed else x.new_empty(shape)


def packed_slopes(x: Tensor, width: int, block: int) -> Tensor:
    """Room for a byte for each of ``width`` outputs of every token, in words of four; whole tiles of tokens."""
    tile = 256 * 128 // block
    return x.new_empty((-(-x.shape[0] // tile) * tile * width // 4,), dtype=torch.int32)


def packs_slopes(x: Tensor, first_weight: Tensor, second_weight: Tensor) -> bool:
    """Whether both products run in kernels that leave and read slopes as bytes."""
    if not x.is_cuda or find_spec("triton") is None:
        return False
    from acf.ops.triton.warp_specialised import has_packed_slopes

    return has_packed_slopes(x, first_weight, second_weight)


def input_grad_then_scale(output_grad: Tensor, weight: Tensor, scale: Tensor, *topology: Tensor) -> Tensor:
    """The input gradient ``[tokens, in]`` times ``scale``, which has that shape or is packed."""
    return block_linear_input_grad(output_grad, weight, *topology) * scale


def _fake_scaled_input_grad(output_grad: Tensor, weight: Tensor, scale: Tensor, *topology: Tensor) -> Tensor:
    inputs = grid_cols(BlockTopology(*topology)) * weight.shape[2]
    return output_grad.new_empty((output_grad.shape[0], inputs))


block_linear_gelu = Op(
    "block_linear_gelu",
    f"(Tensor x, Tensor weight, Tensor? bias, bool packed, {TOPOLOGY}) -> (Tensor, Tensor)",
    linear_then_gelu,
    _fake_linear_gelu,
)
block_linear_scaled_input_grad = Op(
    "block_linear_scaled_input_grad",
    f"(Tensor output_grad, Tensor weight, Tensor scale, {TOPOLOGY}) -> Tensor",
    input_grad_then_scale,
    _fake_scaled_input_grad,
)


class _BlockGeluMlp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        first_weight: Tensor,
        first_bias: Tensor | None,
        second_weight: Tensor,
        first_topology: list[Tensor],
        second_topology: list[Tensor],
    ) -> Tensor:
        packed = packs_slopes(x, first_weight, second_weight)
        ctx.bias_dtype = None if first_bias is None else first_bias.dtype
        activated, slope = block_linear_gelu(x, first_weight, first_bias, packed, *first_topology)
        ctx.save_for_backward(x, first_weight, second_weight, activated, slope, *first_topology, *second_topology)
        return block_linear_forward(activated, second_weight, None, *second_topology)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
        x, first_weight, second_weight, activated, slope, *topologies = ctx.saved_tensors
        first, second = topologies[:6], topologies[6:]
        needs_x, needs_first, needs_bias, needs_second = ctx.needs_input_grad[:4]
        output_grad = output_grad.contiguous()
        second_grad = block_linear_weight_grad(output_grad, activated, *second) if needs_second else None
        if not (needs_x or needs_first or needs_bias):
            return None, None, None, second_grad, None, None
        hidden_grad = block_linear_scaled_input_grad(output_grad, second_weight, slope, *second)
        dtype = ctx.bias_dtype if needs_bias else None
        return (
            block_linear_input_grad(hidden_grad, first_weight, *first) if needs_x else None,
            *parameter_grads(hidden_grad, x, first, needs_first, dtype),
            second_grad,
            None,
            None,
        )


def _mlp(
    x: Tensor,
    first_weight: Tensor,
    first_bias: Tensor | None,
    second_weight: Tensor,
    first_topology: list[Tensor],
    second_topology: list[Tensor],
) -> Tensor:
    operands = (x, first_weight, first_bias, second_weight)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in operands):
        y: Tensor = _BlockGeluMlp.apply(*operands, first_topology, second_topology)  # type: ignore[no-untyped-call]
        return y
    packed = packs_slopes(x, first_weight, second_weight)
    activated, _ = block_linear_gelu(x, first_weight, first_bias, packed, *first_topology)
    return block_linear_forward(activated, second_weight, None, *second_topology)


_block_gelu_mlp = differentiable("block_gelu_mlp", torch.library.infer_schema(_mlp, mutates_args=()), _mlp)


def block_gelu_mlp(
    x: Tensor,
    first_weight: Tensor,
    first_bias: Tensor | None,
    second_weight: Tensor,
    first_topology: BlockTopology,
    second_topology: BlockTopology,
) -> Tensor:
    """``x [..., in]`` through a block-sparse layer with bias, a GELU and a second layer: ``[..., out]``.

    Equals `block_linear` twice with `torch.nn.functional.gelu` between them, to the accuracy of the dtype, and is
    differentiable in ``x``, both weights and the bias.
    """
    flat = x.reshape(-1, x.shape[-1])
    y = _block_gelu_mlp(flat, first_weight, first_bias, second_weight, list(first_topology), list(second_topology))
    return y.reshape(*x.shape[:-1], y.shape[-1])
