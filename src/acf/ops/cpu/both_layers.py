"""CPU kernels of the ops of `acf.ops.whole_mlp`: a strip of tokens through both layers while it is in the caches."""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acf.ops.activation import ACTIVATIONS
from acf.ops.cpu import kernels
from acf.ops.cpu.call import BY_COLUMNS, BY_ROWS, EPILOGUES, Walk, instruction_set, readable_indices, run_pass
from acf.ops.observe import is_observed
from acf.ops.reference import grid_cols, grid_rows
from acf.ops.whole_mlp import (
    BothLayers,
    Gradients,
    backward_in_parts,
    empty_like_tokens,
    forward_in_parts,
    strip_tokens,
)
from acf.sparse import BlockTopology

MOST_WEIGHT_BYTES = 8 << 20
"""Of both layers: every strip reads all weights, and every thread sums their gradients beside its strips."""

TOKEN_ARRAY = "P3q"
LAYER = "Pq9P"
PROBLEM = struct.Struct(f"10q{TOKEN_ARRAY * 3}P{LAYER * 2}")  # struct MlpProblem of native/problem.h


class Weights(NamedTuple):
    """The parameters of one layer, contiguous, and the gradients that a backward pass writes, if any."""

    weight: Tensor
    bias: Tensor | None
    topology: BlockTopology
    weight_grad: Tensor | None = None
    bias_grad: Tensor | None = None


def runs_whole(
    x: Tensor,
    weights: tuple[Tensor, Tensor],
    biases: tuple[Tensor | None, Tensor | None],
    topologies: tuple[Any, Any],
) -> bool:
    """Whether the native kernels take both layers at once, and it pays."""
    first, second = (BlockTopology(*topology) for topology in topologies)
    layers = [Weights(*each) for each in zip(weights, biases, (first, second), strict=True)]
    size = sum(weight.numel() * weight.element_size() for weight in weights)
    return (
        _operands_fit(x, *layers)
        and not (x.dtype == torch.bfloat16 and instruction_set() == "amx")  # whose separate products are in tiles
        and size <= MOST_WEIGHT_BYTES
        and all(kernels.applies(layer.weight.shape[1:], x, layer.weight, layer.topology) for layer in layers)
    )


def block_mlp_forward(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """CPU kernel of ``acf::block_mlp_forward``."""
    if not _is_native(x, rest):
        return forward_in_parts(x, *rest)
    first, second = _layers(rest)
    y = empty_like_tokens(x, grid_rows(second.topology) * second.weight.shape[1])
    hidden = x.new_empty(x.shape[0] * x.shape[1] * grid_cols(second.topology) * second.weight.shape[2])
    _run("acf_mlp_forward", (x, y, None), hidden, (first, second), rest[4])
    return y, hidden


def block_mlp_backward(output_grad: Tensor, x: Tensor, hidden: Tensor, *rest: Any) -> Gradients:
    """CPU kernel of ``acf::block_mlp_backward``."""
    layers = BothLayers(*rest)
    if not _is_native(x, rest) or any(is_observed(token) for token in (layers.first_token, layers.second_token)):
        return backward_in_parts(output_grad, x, hidden, *rest)
    first, second = _layers(rest)
    if not _gradient_fits(output_grad, x, hidden, second):
        return backward_in_parts(output_grad, x, hidden, *rest)
    weight_grads = [torch.empty_like(layer.weight, dtype=torch.float32) for layer in (first, second)]
    widths = (grid_rows(layer.topology) * layer.weight.shape[1] for layer in (first, second))
    bias_grads = [x.new_empty(width, dtype=torch.float32) for width in widths]
    written = [
        layer._replace(weight_grad=weight_grad, bias_grad=bias_grad)
        for layer, weight_grad, bias_grad in zip((first, second), weight_grads, bias_grads, strict=True)
    ]
    x_grad = empty_like_tokens(x, x.shape[2])
    _run("acf_mlp_backward", (x, output_grad, x_grad), hidden, written, rest[4])
    dtype = layers.dtype or x.dtype
    first_grads, second_grads = (
        [each.to(dtype) for each in pair] for pair in zip(weight_grads, bias_grads, strict=True)
    )
    return x_grad, first_grads[0], first_grads[1], second_grads[0], second_grads[1]


def _is_native(x: Tensor, rest: Sequence[Any]) -> bool:
    """Whether the kernels can take both layers; who computes one pass need not know who computed the other."""
    first, second = (Weights(rest[place], rest[place + 1], BlockTopology(*rest[5 + place // 2])) for place in (0, 2))
    natives = (kernels.applies(layer.weight.shape[1:], x, layer.weight) for layer in (first, second))
    return x.dim() == 3 and rest[4] in ACTIVATIONS and _operands_fit(x, first, second) and all(natives)


def _operands_fit(x: Tensor, first: Weights, second: Weights) -> bool:
    """Whether input, both layers and their biases have sizes and dtypes that fit together."""
    return (
        x.dtype in kernels.NATIVE_DTYPES
        and x.shape[-1] == grid_cols(first.topology) * first.weight.shape[2]
        and grid_rows(first.topology) * first.weight.shape[1] == grid_cols(second.topology) * second.weight.shape[2]
        and first.weight.shape[1:] == second.weight.shape[1:]
        and all(_layer_fits(layer) for layer in (first, second))
    )


def _layer_fits(layer: Weights) -> bool:
    outputs = (grid_rows(layer.topology) * layer.weight.shape[1],)
    bias_fits = layer.bias is None or (layer.bias.dtype in kernels.NATIVE_DTYPES and layer.bias.shape == outputs)
    return bias_fits and layer.weight.shape[0] == layer.topology.block_rows.shape[0]


def _gradient_fits(output_grad: Tensor, x: Tensor, hidden: Tensor, second: Weights) -> bool:
    """Whether the gradient is one of the output, and the sums are those that a forward pass of ``x`` keeps."""
    batch, tokens, _ = x.shape
    hidden_channels = grid_cols(second.topology) * second.weight.shape[2]
    return (
        output_grad.shape == (batch, tokens, grid_rows(second.topology) * second.weight.shape[1])
        and hidden.shape == (batch * tokens * hidden_channels,)
        and hidden.is_contiguous()
        and output_grad.dtype == hidden.dtype == x.dtype
    )


def _layers(rest: Sequence[Any]) -> tuple[Weights, Weights]:
    first_weight, first_bias, second_weight, second_bias, _, first_topology, second_topology = rest[:7]
    return (
        _contiguous(first_weight, first_bias, first_topology, BY_ROWS),
        _contiguous(second_weight, second_bias, second_topology, BY_COLUMNS),
    )


def _contiguous(weight: Tensor, bias: Tensor | None, topology: Sequence[Tensor], walk: Walk) -> Weights:
    indices = BlockTopology(*readable_indices(BlockTopology(*topology), walk, weight.shape[0]))
    return Weights(weight.contiguous(), None if bias is None else bias.float().contiguous(), indices)


def _run(
    name: str,
    arrays: tuple[Tensor, Tensor, Tensor | None],
    hidden: Tensor,
    layers: Sequence[Weights],
    activation: str,
) -> None:
    """``arrays``: the input, the output or its gradient, and the input gradient, if there is one."""
    x, y, _ = arrays
    batch, tokens, inputs = x.shape
    block = layers[0].weight.shape[1]
    setting = (int(x.dtype == torch.bfloat16), torch.get_num_threads(), block, EPILOGUES[activation])
    sizes = (*setting, batch, tokens, strip_tokens(batch, tokens))
    channels = (inputs, grid_rows(layers[0].topology) * block, y.shape[2])
    places = (each for array in arrays for each in _place(array))
    parameters = (each for layer in layers for each in _pointers(layer))
    run_pass(name, PROBLEM.pack(*sizes, *channels, *places, hidden.data_ptr(), *parameters))


def _place(array: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 0, 0) if array is None else (array.data_ptr(), *array.stride())


def _pointers(layer: Weights) -> tuple[int, ...]:
    arrays = (layer.bias, layer.weight_grad, layer.bias_grad)
    return (
        layer.weight.data_ptr(),
        layer.weight.shape[0],
        *(indices.data_ptr() for indices in layer.topology),
        *(0 if array is None else array.data_ptr() for array in arrays),
    )
