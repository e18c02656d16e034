"""CPU kernels of the ops of `acf.ops.whole_mlp`: a strip of tokens through both layers while it is in the caches."""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acf.ops.cpu import kernels
from acf.ops.cpu.call import EPILOGUES, run_pass
from acf.ops.observe import is_observed
from acf.ops.reference import grid_cols, grid_rows
from acf.ops.whole_mlp import Gradients, backward_in_parts, empty_like_tokens, forward_in_parts, strip_tokens
from acf.sparse import BlockTopology

MOST_WEIGHT_BYTES = 8 << 20
"""Of both layers: every strip reads all weights, and every thread sums their gradients beside its strips."""

TOKEN_ARRAY = "P3q"
LAYER = "Pq9P"
PROBLEM = struct.Struct(f"9q{TOKEN_ARRAY * 3}P{LAYER * 2}")  # struct MlpProblem of native/problem.h


class Weights(NamedTuple):
    """The parameters of one layer, contiguous, and the gradients that a backward pass writes, if any."""

    weight: Tensor
    bias: Tensor | None
    topology: BlockTopology
    weight_grad: Tensor | None = None
    bias_grad: Tensor | None = None


def runs_whole(x: Tensor, weights: tuple[Tensor, Tensor], topologies: tuple[Any, Any]) -> bool:
    """Whether the native kernels take both layers at once, and it pays."""
    first, second = (BlockTopology(*topology) for topology in topologies)
    layers = tuple(zip(weights, (first, second), strict=True))
    fits = (
        x.shape[-1] == grid_cols(first) * weights[0].shape[2]
        and grid_rows(first) * weights[0].shape[1] == grid_cols(second) * weights[1].shape[2]
        and weights[0].shape[1:] == weights[1].shape[1:]
        and all(weight.shape[0] == topology.block_rows.shape[0] for weight, topology in layers)
    )
    size = sum(weight.numel() * weight.element_size() for weight in weights)
    return (
        fits
        and x.dtype == torch.float32
        and size <= MOST_WEIGHT_BYTES
        and all(kernels.applies(weight.shape[1:], x, weight, topology) for weight, topology in layers)
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
    if not _is_native(x, rest) or any(is_observed(token) for token in rest[7:]):
        return backward_in_parts(output_grad, x, hidden, *rest)
    first, second = _layers(rest)
    weight_grads = [torch.empty_like(layer.weight) for layer in (first, second)]
    bias_grads = [x.new_empty(grid_rows(layer.topology) * layer.weight.shape[1]) for layer in (first, second)]
    written = [
        layer._replace(weight_grad=weight_grad, bias_grad=bias_grad)
        for layer, weight_grad, bias_grad in zip((first, second), weight_grads, bias_grads, strict=True)
    ]
    x_grad = empty_like_tokens(x, x.shape[2])
    _run("acf_mlp_backward", (x, output_grad, x_grad), hidden, written, rest[4])
    return x_grad, weight_grads[0], bias_grads[0], weight_grads[1], bias_grads[1]


def _is_native(x: Tensor, rest: Sequence[Any]) -> bool:
    """Whether the kernels can take both layers; who computes one pass need not know who computed the other."""
    weights = rest[0], rest[2]
    same_blocks = weights[0].shape[1:] == weights[1].shape[1:]
    biases_fit = all(bias is None or bias.dtype == torch.float32 for bias in (rest[1], rest[3]))
    natives = (kernels.applies(weight.shape[1:], x, weight) for weight in weights)
    return x.dtype == torch.float32 and same_blocks and biases_fit and all(natives)


def _layers(rest: Sequence[Any]) -> tuple[Weights, Weights]:
    first_weight, first_bias, second_weight, second_bias, _, first_topology, second_topology = rest[:7]
    return (
        _contiguous(first_weight, first_bias, first_topology),
        _contiguous(second_weight, second_bias, second_topology),
    )


def _contiguous(weight: Tensor, bias: Tensor | None, topology: Sequence[Tensor]) -> Weights:
    indices = BlockTopology(*(each.contiguous() for each in topology))
    return Weights(weight.contiguous(), None if bias is None else bias.contiguous(), indices)


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
    sizes = (torch.get_num_threads(), block, EPILOGUES[activation], batch, tokens, strip_tokens(batch, tokens))
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
