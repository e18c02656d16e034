"""Two block-sparse linear layers with an activation between them, as custom ops.

The first product stores the activation's value and slope instead of its own result. In the backward pass the second
layer's input gradient is multiplied by that slope. On a GPU both happen in the epilogues of the products; large
products in bfloat16 keep the slope as bytes, in the order of the threads that write and read it.
"""

from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from acf.ops.activation import ACTIVATIONS
from acf.ops.library import TOPOLOGY, Op, differentiable
from acf.ops.linear import (
    block_linear_forward,
    block_linear_input_grad,
    parameter_grads,
)
from acf.ops.reference import grid_cols, grid_rows
from acf.sparse import BlockTopology


class MlpLayer(NamedTuple):
    """One of the two layers: packed weight ``[nnz, block_height, block_width]``, topology, bias ``[out]`` or None."""

    weight: Tensor
    topology: BlockTopology
    bias: Tensor | None = None


def linear_then_activation(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, packed: bool, *topology: Tensor
) -> tuple[Tensor, Tensor]:
    """Activation of the product ``[tokens, out]``, and its slope; ``packed`` is for kernels that `packs_slopes`."""
    if packed:
        raise ValueError("slopes are packed by a GPU kernel only; call with packed=False")
    hidden = block_linear_forward(x, weight, None, *topology)
    wide = hidden if hidden.dtype == torch.float64 else hidden.float()
    value, slope = ACTIVATIONS[activation](wide if bias is None else wide + bias)
    return value.to(x.dtype), slope.to(x.dtype)


def _fake_linear_activation(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, packed: bool, *topology: Tensor
) -> tuple[Tensor, Tensor]:
    shape = (x.shape[0], grid_rows(BlockTopology(*topology)) * weight.shape[1])
    return x.new_empty(shape), packed_slopes(x, shape[1], weight.shape[1]) if packed else x.new_empty(shape)


def packed_slopes(x: Tensor, width: int, block: int) -> Tensor:
    """A buffer of one byte for each of ``width`` outputs of every token, in words of four; whole token tiles."""
    tile = 256 * 128 // block
    return x.new_empty((-(-x.shape[0] // tile) * tile * width // 4,), dtype=torch.int32)


def packs_slopes(x: Tensor, first_weight: Tensor, second_weight: Tensor) -> bool:
    """Whether both products run in kernels that store and load slopes as bytes."""
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


block_linear_activation = Op(
    "block_linear_activation",
    f"(Tensor x, Tensor weight, Tensor? bias, str activation, bool packed, {TOPOLOGY}) -> (Tensor, Tensor)",
    linear_then_activation,
    _fake_linear_activation,
)
block_linear_scaled_input_grad = Op(
    "block_linear_scaled_input_grad",
    f"(Tensor output_grad, Tensor weight, Tensor scale, {TOPOLOGY}) -> Tensor",
    input_grad_then_scale,
    _fake_scaled_input_grad,
)


class _BlockMlp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *rest: Any) -> Tensor:
        first_weight, first_bias, second_weight, second_bias, first, second, activation = rest
        parameters = (first_weight, first_bias, second_weight, second_bias)
        ctx.dtypes = [None if parameter is None else parameter.dtype for parameter in parameters]
        first_weight, second_weight = first_weight.to(x.dtype), second_weight.to(x.dtype)
        packed = packs_slopes(x, first_weight, second_weight)
        activated, slope = block_linear_activation(x, first_weight, first_bias, activation, packed, *first)
        ctx.save_for_backward(x, first_weight, second_weight, activated, slope, *first, *second)
        return block_linear_forward(activated, second_weight, second_bias, *second)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
        x, first_weight, second_weight, activated, slope, *topologies = ctx.saved_tensors
        first, second = topologies[:6], topologies[6:]
        needs_x, *needs_parameters = ctx.needs_input_grad[:5]
        dtypes = [dtype if needed else None for dtype, needed in zip(ctx.dtypes, needs_parameters, strict=True)]
        output_grad = output_grad.contiguous()
        second_grads = parameter_grads(output_grad, activated, second, (dtypes[2], dtypes[3]))
        if not (needs_x or needs_parameters[0] or needs_parameters[1]):
            return None, None, None, *second_grads, None, None, None
        hidden_grad = block_linear_scaled_input_grad(output_grad, second_weight, slope, *second)
        input_grad = block_linear_input_grad(hidden_grad, first_weight, *first) if needs_x else None
        first_grads = parameter_grads(hidden_grad, x, first, (dtypes[0], dtypes[1]))
        return input_grad, *first_grads, *second_grads, None, None, None


def _mlp(x: Tensor, *rest: Any) -> Tensor:
    first_weight, first_bias, second_weight, second_bias, first, second, activation = rest
    operands = (x, first_weight, first_bias, second_weight, second_bias)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in operands):
        y: Tensor = _BlockMlp.apply(x, *rest)  # type: ignore[no-untyped-call]
        return y
    first_weight, second_weight = first_weight.to(x.dtype), second_weight.to(x.dtype)
    packed = packs_slopes(x, first_weight, second_weight)
    activated, _ = block_linear_activation(x, first_weight, first_bias, activation, packed, *first)
    return block_linear_forward(activated, second_weight, second_bias, *second)


_block_mlp = differentiable(
    "block_mlp",
    "(Tensor x, Tensor first_weight, Tensor? first_bias, Tensor second_weight, Tensor? second_bias, "
    "Tensor[] first_topology, Tensor[] second_topology, str activation) -> Tensor",
    _mlp,
)


def block_mlp(x: Tensor, first: MlpLayer, second: MlpLayer, activation: str = "gelu") -> Tensor:
    """``x [..., in]`` through a block-sparse layer, an activation of `ACTIVATIONS` and a second layer: ``[..., out]``.

    Equals `block_linear` twice with the activation between them, to the accuracy of the dtype, and is differentiable
    in ``x``, both weights and both biases.
    """
    flat = x.reshape(-1, x.shape[-1])
    parameters = (first.weight, first.bias, second.weight, second.bias)
    y = _block_mlp(flat, *parameters, list(first.topology), list(second.topology), activation)
    return y.reshape(*x.shape[:-1], y.shape[-1])
