"""Two block-sparse linear layers with an activation between them, and all their gradients, as two custom ops.

Where a device has kernels for the whole, neither the hidden layer's values nor their gradients are stored: the forward
pass keeps the sums before the activation, the backward pass makes all five gradients from them. Operands are ``x
[batch, tokens, in]`` with any strides, so an MLP across the tokens of a batch (MLP-Mixer) needs no transposed copy.

The sums are kept in the order of the kernels: ``[strip][hidden block][token][block]``, where `strip_tokens` tells how
many tokens make a strip; the last one of a batch entry may be narrower. Hidden blocks that no block of the second layer
reads have no values there.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acf.ops.activation import ACTIVATIONS
from acf.ops.library import Op
from acf.ops.linear import (
    block_linear_forward,
    block_linear_input_grad,
    block_linear_weight_and_bias_grad,
)
from acf.ops.reference import grid_cols, grid_rows
from acf.sparse import BlockTopology

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Of ``x``, of weight and bias of the first layer, and of those of the second."""

MOST_STRIP_TOKENS = 128
STRIPS = 16  # at least so many, for threads to share

LAYERS = (
    "Tensor first_weight, Tensor? first_bias, Tensor second_weight, Tensor? second_bias, str activation, "
    "Tensor[] first_topology, Tensor[] second_topology"
)


def strip_tokens(batch: int, tokens: int) -> int:
    """Tokens per strip, a multiple of 8, by the sizes alone: both passes must agree on it.

    >>> strip_tokens(1, 2048), strip_tokens(8, 30)
    (128, 16)
    """
    return max(8, min(MOST_STRIP_TOKENS, -(-batch * tokens // (8 * STRIPS)) * 8))


def tokens_innermost(x: Tensor) -> bool:
    """Whether ``x [batch, tokens, channels]`` is the transpose of a tensor whose tokens lie together."""
    return x.dim() == 3 and x.stride(1) == 1 and x.stride(2) != 1


def empty_like_tokens(x: Tensor, channels: int) -> Tensor:
    """A new ``[batch, tokens, channels]`` in the order of memory that ``x`` has."""
    batch, tokens, _ = x.shape
    if tokens_innermost(x):
        return x.new_empty(batch, channels, tokens).transpose(1, 2)
    return x.new_empty(batch, tokens, channels)


class BothLayers(NamedTuple):
    """What both ops take after the activations: `LAYERS`, and of the backward pass more.

    That is the layers' tokens, and the dtype of the parameters' gradients; None: that of ``x``.
    """

    first_weight: Tensor
    first_bias: Tensor | None
    second_weight: Tensor
    second_bias: Tensor | None
    activation: str
    first_topology: Sequence[Tensor]
    second_topology: Sequence[Tensor]
    first_token: Tensor | None = None
    second_token: Tensor | None = None
    dtype: torch.dtype | None = None


def forward_in_parts(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    """The output ``[batch, tokens, out]``, and the sums before the activation as the kernels order them."""
    layers = BothLayers(*arguments)
    sums = block_linear_forward(_flat(x), layers.first_weight, layers.first_bias, *layers.first_topology)
    values, _ = _activated(layers.activation, sums)
    y = block_linear_forward(values, layers.second_weight, layers.second_bias, *layers.second_topology)
    kept = torch.cat([part.flatten() for part in _strips(sums, x, layers.first_weight.shape[1])])
    return empty_like_tokens(x, y.shape[1]).copy_(y.view(*x.shape[:2], y.shape[1])), kept


def backward_in_parts(output_grad: Tensor, x: Tensor, hidden: Tensor, *arguments: Any) -> Gradients:
    """Gradients of ``x``, both weights and both biases, from the separate products, which observers listen to.

    The sums are made again: kernels leave out of ``hidden`` what the present blocks of the second layer do not read,
    but the scores of absent blocks need it.
    """
    layers = BothLayers(*arguments)
    first, second = layers.first_topology, layers.second_topology
    flat_grad, flat_x, dtype = _flat(output_grad), _flat(x), layers.dtype or x.dtype
    sums = block_linear_forward(flat_x, layers.first_weight, layers.first_bias, *first)
    values, slopes = _activated(layers.activation, sums)
    second_grads = block_linear_weight_and_bias_grad(flat_grad, values, *second, dtype, dtype, layers.second_token)
    hidden_grad = block_linear_input_grad(flat_grad, layers.second_weight, *second) * slopes
    first_grads = block_linear_weight_and_bias_grad(hidden_grad, flat_x, *first, dtype, dtype, layers.first_token)
    x_grad = block_linear_input_grad(hidden_grad, layers.first_weight, *first)
    return empty_like_tokens(x, x.shape[2]).copy_(x_grad.view_as(x)), *first_grads, *second_grads


def _activated(activation: str, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Value and slope, computed in float32 at least."""
    value, slope = ACTIVATIONS[activation](sums if sums.dtype == torch.float64 else sums.float())
    return value.to(sums.dtype), slope.to(sums.dtype)


def _flat(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _strips(sums: Tensor, x: Tensor, block: int) -> list[Tensor]:
    """``sums [batch * tokens, hidden]`` as one view ``[hidden block, token, block]`` for each strip."""
    batch, tokens, _ = x.shape
    strip = strip_tokens(batch, tokens)
    entries = sums.view(batch, tokens, -1, block).unbind()
    return [part.transpose(0, 1) for entry in entries for part in torch.split(entry, strip)]


def _fake_forward(x: Tensor, first_weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    second_weight, first_topology, second_topology = rest[1], *(BlockTopology(*each) for each in rest[4:6])
    hidden = grid_rows(first_topology) * first_weight.shape[1]
    outputs = grid_rows(second_topology) * second_weight.shape[1]
    return empty_like_tokens(x, outputs), x.new_empty(x.shape[0] * x.shape[1] * hidden)


def _fake_backward(output_grad: Tensor, x: Tensor, hidden: Tensor, first_weight: Tensor, *rest: Any) -> Gradients:
    layers = BothLayers(first_weight, *rest)
    sizes = (
        first_weight.shape,
        grid_cols(BlockTopology(*layers.second_topology)) * layers.second_weight.shape[2],
        layers.second_weight.shape,
        output_grad.shape[2],
    )
    first, first_bias, second, second_bias = (x.new_empty(size, dtype=layers.dtype or x.dtype) for size in sizes)
    return empty_like_tokens(x, x.shape[2]), first, first_bias, second, second_bias


block_mlp_forward = Op(
    "block_mlp_forward", f"(Tensor x, {LAYERS}) -> (Tensor, Tensor)", forward_in_parts, _fake_forward
)
block_mlp_backward = Op(
    "block_mlp_backward",
    f"(Tensor output_grad, Tensor x, Tensor hidden, {LAYERS}, Tensor? first_token=None, Tensor? second_token=None, "
    "ScalarType? dtype=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    backward_in_parts,
    _fake_backward,
)
