"""A gated pair of block-sparse linear layers and the layer after it, as custom ops: SwiGLU, GEGLU and the like.

``down(activation(gate(x)) * up(x))``. One op computes both products of ``x`` and stores their gated product with the
two factors of the backward pass: ``gate_factor = slope * up`` and ``up_factor = value``, where value and slope are the
activation's. The input gradient of the down layer is stored as its products with both factors. The input gradients of
gate and up are one sum. On a GPU all of it happens in the epilogues of the products.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from acf.ops.activation import ACTIVATIONS
from acf.ops.differentiate import input_grad, is_transformed, multiply
from acf.ops.library import TOPOLOGY, Op, differentiable
from acf.ops.linear import block_linear_forward, block_linear_input_grad
from acf.ops.mlp import (
    MlpLayer,
    Operands,
    block_linear_activation,
    check_follows,
    check_mlp_layers,
    layer_grads,
    operands_of,
)
from acf.ops.operands import check_activation, check_linear
from acf.ops.reference import grid_cols, grid_rows
from acf.sparse import BlockTopology

ThreeTensors = tuple[Tensor, Tensor, Tensor]


def products_then_gate(x: Tensor, gate_weight: Tensor, up_weight: Tensor, *rest: Any) -> ThreeTensors:
    """``activation(gate) * up``, and with ``factors`` gate factor and up factor; all ``[tokens, hidden]``.

    ``rest`` is what else `block_linear_gated` takes: both biases, activation, ``factors``, both topologies.
    """
    gate_bias, up_bias, activation, factors, gate_topology, up_topology = rest
    value, slope = block_linear_activation(x, gate_weight, gate_bias, activation, False, *gate_topology)
    up = block_linear_forward(x, up_weight, up_bias, *up_topology)
    if not factors:
        return value.mul_(up), x.new_empty(0), x.new_empty(0)
    return value * up, slope.mul_(up), value


def _fake_gate(x: Tensor, gate_weight: Tensor, *rest: Any) -> ThreeTensors:
    factors, gate_topology = rest[4], rest[5]
    shape = (x.shape[0], grid_rows(BlockTopology(*gate_topology)) * gate_weight.shape[1])
    return x.new_empty(shape), *(x.new_empty(shape if factors else (0,)) for _ in range(2))  # type: ignore[return-value]


def input_grad_then_factors(
    output_grad: Tensor, weight: Tensor, gate_factor: Tensor, up_factor: Tensor, *topology: Tensor
) -> tuple[Tensor, Tensor]:
    """The input gradient ``[tokens, hidden]`` times each factor: the gradients of the results of gate and up."""
    hidden_grad = block_linear_input_grad(output_grad, weight, *topology)
    return hidden_grad * gate_factor, hidden_grad * up_factor


def _fake_factors(output_grad: Tensor, weight: Tensor, gate_factor: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(gate_factor), torch.empty_like(gate_factor)


def input_grads_then_sum(
    gate_grad: Tensor,
    up_grad: Tensor,
    gate_weight: Tensor,
    up_weight: Tensor,
    gate_topology: Sequence[Tensor],
    up_topology: Sequence[Tensor],
) -> Tensor:
    """The sum of the input gradients of gate and up, ``[tokens, in]``."""
    gate = block_linear_input_grad(gate_grad, gate_weight, *gate_topology)
    return gate.add_(block_linear_input_grad(up_grad, up_weight, *up_topology))


def _fake_sum(gate_grad: Tensor, up_grad: Tensor, gate_weight: Tensor, *rest: Any) -> Tensor:
    inputs = grid_cols(BlockTopology(*rest[1])) * gate_weight.shape[2]
    return gate_grad.new_empty((gate_grad.shape[0], inputs))


block_linear_gated = Op(
    "block_linear_gated",
    "(Tensor x, Tensor gate_weight, Tensor up_weight, Tensor? gate_bias, Tensor? up_bias, str activation, "
    "bool factors, Tensor[] gate_topology, Tensor[] up_topology) -> (Tensor, Tensor, Tensor)",
    products_then_gate,
    _fake_gate,
)
block_linear_gated_input_grad = Op(
    "block_linear_gated_input_grad",
    f"(Tensor output_grad, Tensor weight, Tensor gate_factor, Tensor up_factor, {TOPOLOGY}) -> (Tensor, Tensor)",
    input_grad_then_factors,
    _fake_factors,
)
block_linear_pair_input_grad = Op(
    "block_linear_pair_input_grad",
    "(Tensor gate_grad, Tensor up_grad, Tensor gate_weight, Tensor up_weight, "
    "Tensor[] gate_topology, Tensor[] up_topology) -> Tensor",
    input_grads_then_sum,
    _fake_sum,
)


class _GatedMlp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gate: Operands, up: Operands, down: Operands, activation: str, *leaves: Any
    ) -> Tensor:
        """``leaves``: the tensors of the layers that may need a gradient, as autograd must see them."""
        ctx.activation, ctx.layers = activation, (gate.layer, up.layer, down.layer)
        ctx.dtypes = [None if each is None else each.dtype for layer in (gate, up, down) for each in layer.own]
        weights = (gate.product_weight, up.product_weight, down.product_weight)
        hidden, gate_factor, up_factor = block_linear_gated(
            x, *weights[:2], gate.bias, up.bias, activation, True, list(gate.topology), list(up.topology)
        )
        topologies = (*gate.topology, *up.topology, *down.topology)
        ctx.save_for_backward(x, hidden, gate_factor, up_factor, *weights, gate.bias, up.bias, *topologies)
        return block_linear_forward(hidden, weights[2], down.bias, *down.topology)

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, *factors, gate_weight, up_weight, down_weight, gate_bias, up_bias = ctx.saved_tensors[:9]
        tensors = ctx.saved_tensors[9:]
        topologies, (gate, up, down) = (tensors[:6], tensors[6:12], tensors[12:]), ctx.layers
        needs_x, needs = ctx.needs_input_grad[0], [ctx.needs_input_grad[index] for index in (5, 7, 8, 10, 11, 13)]
        dtypes = [dtype if needed else None for dtype, needed in zip(ctx.dtypes, needs, strict=True)]
        output_grad, twice = output_grad.contiguous(), torch.is_grad_enabled()
        if twice:  # the forward pass again, differentiably: what it stored knows nothing of where it came from
            value, slope = ACTIVATIONS[ctx.activation](multiply(x, gate_weight, gate_bias, gate, topologies[0]))
            raised = multiply(x, up_weight, up_bias, up, topologies[1])
            hidden, factors = value * raised, [slope * raised, value]
        down_grads = layer_grads(output_grad, hidden, (down, topologies[2]), dtypes[4:], twice)
        nothing = (None, None, None, None)
        if not (needs_x or any(needs[:4])):
            return None, *nothing, None, None, None, None, None, None, down_grads[0], None, down_grads[1]
        x_grad = None
        if twice:
            hidden_grad = input_grad(output_grad, down_weight, hidden.shape, down, topologies[2])
            gate_grad, up_grad = (hidden_grad * factor for factor in factors)
            if needs_x:
                x_grad = input_grad(gate_grad, gate_weight, x.shape, gate, topologies[0])
                x_grad = x_grad + input_grad(up_grad, up_weight, x.shape, up, topologies[1])
        else:
            gate_grad, up_grad = block_linear_gated_input_grad(output_grad, down_weight, *factors, *topologies[2])
            if needs_x:
                pair = (gate_weight, up_weight, list(topologies[0]), list(topologies[1]))
                x_grad = block_linear_pair_input_grad(gate_grad, up_grad, *pair)
        gate_grads = layer_grads(gate_grad, x, (gate, topologies[0]), dtypes[:2], twice)
        up_grads = layer_grads(up_grad, x, (up, topologies[1]), dtypes[2:4], twice)
        grads = [(weight, None, bias) for weight, bias in (gate_grads, up_grads, down_grads)]
        return x_grad, *nothing, *grads[0], *grads[1], *grads[2]


def _gated_mlp(x: Tensor, *rest: Any) -> Tensor:
    parameters, topologies, activation, tokens = rest[:6], rest[6:9], rest[9], (*rest[10:], None, None, None)
    pairs = zip(parameters[::2], parameters[1::2], strict=True)
    layers = [
        operands_of(x, weight, bias, topology, token)
        for (weight, bias), topology, token in zip(pairs, topologies, tokens[:3], strict=True)
    ]
    gate, up, down = layers
    if is_transformed():
        raised = [multiply(x, each.weight, each.bias, each.layer, each.topology) for each in (gate, up)]
        hidden = ACTIVATIONS[activation](raised[0])[0] * raised[1]
        return multiply(hidden, down.weight, down.bias, down.layer, down.topology)
    leaves = [tensor for layer in layers for tensor in layer[:3]]
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (x, *leaves)):
        y: Tensor = _GatedMlp.apply(x, *layers, activation, *leaves)  # type: ignore[no-untyped-call]
        return y
    weights, biases = (gate.product_weight, up.product_weight), (gate.bias, up.bias)
    hidden = block_linear_gated(x, *weights, *biases, activation, False, list(gate.topology), list(up.topology))[0]
    return block_linear_forward(hidden, down.product_weight, down.bias, *down.topology)


_block_gated_mlp = differentiable(
    "block_gated_mlp",
    "(Tensor x, Tensor gate_weight, Tensor? gate_bias, Tensor up_weight, Tensor? up_bias, Tensor down_weight, "
    "Tensor? down_bias, Tensor[] gate_topology, Tensor[] up_topology, Tensor[] down_topology, str activation, "
    "Tensor? gate_token=None, Tensor? up_token=None, Tensor? down_token=None) -> Tensor",
    _gated_mlp,
)


def block_gated_mlp(x: Tensor, gate: MlpLayer, up: MlpLayer, down: MlpLayer, activation: str = "silu") -> Tensor:
    """``x [..., in]`` to ``down(activation(gate(x)) * up(x))``, ``[..., out]``; all three layers are block-sparse.

    Equals three `block_linear` with an activation of `ACTIVATIONS` and a product between them, to the accuracy of the
    dtype, and is differentiable in ``x``, all weights and all biases.
    """
    check_activation(activation)
    check_mlp_layers(gate=gate, up=up, down=down)
    for layer in (gate, up):
        check_linear(x, layer.weight, layer.topology, layer.bias)
        check_follows(down, layer)
    flat, layers = x.reshape(-1, x.shape[-1]), (gate, up, down)
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    topologies = [list(layer.topology) for layer in layers]
    y = _block_gated_mlp(flat, *parameters, *topologies, activation, *(layer.token for layer in layers))
    return y.reshape(*x.shape[:-1], y.shape[-1])
