"""Two block-sparse linear layers with an activation between them, as custom ops.

The first product stores the activation's value and slope instead of its own result. In the backward pass the second
layer's input gradient is multiplied by that slope. Both happen in the epilogues of the products; on a GPU large
products in bfloat16 keep the slope as bytes, in the order of the threads that write and read it.
"""

from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acf.errors import SparsityError, require_kind
from acf.ops import reference
from acf.ops.activation import ACTIVATIONS
from acf.ops.differentiate import Layer, Topology, input_grad, is_transformed, multiply, weight_grad
from acf.ops.library import TOPOLOGY, Op, differentiable
from acf.ops.linear import LINEAR, block_linear_forward, block_linear_input_grad, parameter_grads
from acf.ops.operands import check_activation, check_layer, check_linear
from acf.ops.reference import grid_cols, grid_rows
from acf.ops.whole_mlp import block_mlp_backward, block_mlp_forward, tokens_innermost
from acf.sparse import BlockTopology


class MlpLayer(NamedTuple):
    """One of the two layers: packed weight ``[nnz, block_height, block_width]``, topology, bias ``[out]`` or None.

    ``token`` is as in `acf.ops.block_linear`.
    """

    weight: Tensor
    topology: BlockTopology
    bias: Tensor | None = None
    token: Tensor | None = None


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
    def forward(ctx: Any, x: Tensor, first: "Operands", second: "Operands", activation: str, *leaves: Any) -> Tensor:
        """``leaves``: the tensors of ``first`` and ``second`` that may need a gradient, as autograd must see them."""
        ctx.activation, ctx.layers = activation, (first.layer, second.layer)
        ctx.dtypes = [None if parameter is None else parameter.dtype for parameter in (*first.own, *second.own)]
        first_weight, second_weight = first.product_weight, second.product_weight
        packed = packs_slopes(x, first_weight, second_weight)
        topologies = (*first.topology, *second.topology)
        activated, slope = block_linear_activation(x, first_weight, first.bias, activation, packed, *first.topology)
        ctx.save_for_backward(x, first_weight, second_weight, first.bias, activated, slope, *topologies)
        return block_linear_forward(activated, second_weight, second.bias, *second.topology)

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
        x, first_weight, second_weight, first_bias, activated, slope, *tensors = ctx.saved_tensors
        (first, second), first_topology, second_topology = ctx.layers, tensors[:6], tensors[6:]
        needs_x, needs = ctx.needs_input_grad[0], [ctx.needs_input_grad[index] for index in (4, 6, 7, 9)]
        dtypes = [dtype if needed else None for dtype, needed in zip(ctx.dtypes, needs, strict=True)]
        output_grad = output_grad.contiguous()
        twice = torch.is_grad_enabled()
        if twice:  # the forward pass again, differentiably: what it stored knows nothing of where it came from
            hidden = multiply(x, first_weight, first_bias, first, first_topology)
            activated, slope = ACTIVATIONS[ctx.activation](hidden)
        second_grads = layer_grads(output_grad, activated, (second, second_topology), dtypes[2:], twice)
        nothing = None, None, None
        if not (needs_x or needs[0] or needs[1]):
            return None, *nothing, None, None, None, second_grads[0], None, second_grads[1]
        if twice:
            hidden_grad = input_grad(output_grad, second_weight, activated.shape, second, second_topology) * slope
            x_grad = input_grad(hidden_grad, first_weight, x.shape, first, first_topology) if needs_x else None
        else:
            hidden_grad = block_linear_scaled_input_grad(output_grad, second_weight, slope, *second_topology)
            x_grad = block_linear_input_grad(hidden_grad, first_weight, *first_topology) if needs_x else None
        first_grads = layer_grads(hidden_grad, x, (first, first_topology), dtypes[:2], twice)
        return x_grad, *nothing, first_grads[0], None, first_grads[1], second_grads[0], None, second_grads[1]


class _WholeMlp(torch.autograd.Function):
    """The same where one kernel serves both layers; ``x [batch, tokens, in]``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, first: "Operands", second: "Operands", activation: str, *leaves: Any) -> Tensor:
        ctx.activation, ctx.layers, ctx.dtype = activation, (first.layer, second.layer), first.weight.dtype
        parameters = (first.product_weight, first.bias, second.product_weight, second.bias)
        y, hidden = block_mlp_forward(x, *parameters, activation, list(first.topology), list(second.topology))
        ctx.save_for_backward(x, hidden, *parameters, *first.topology, *second.topology)
        return y

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, *rest = ctx.saved_tensors
        parameters, topologies, (first, second) = rest[:4], (rest[4:10], rest[10:]), ctx.layers
        if torch.is_grad_enabled():  # differentiably
            grads = _differentiable_grads(output_grad, x, parameters, topologies, ctx)
        else:
            more = first.token, second.token, ctx.dtype
            grads = block_mlp_backward(output_grad, x, hidden, *parameters, ctx.activation, *topologies, *more)
        x_grad, first_weight, first_bias, second_weight, second_bias = grads
        first_bias = None if parameters[1] is None else first_bias
        second_bias = None if parameters[3] is None else second_bias
        return x_grad, None, None, None, first_weight, None, first_bias, second_weight, None, second_bias


def _differentiable_grads(output_grad: Tensor, x: Tensor, parameters: Any, topologies: Any, ctx: Any) -> Any:
    """The gradients of `_WholeMlp` from products that are differentiable in turn."""
    (first_weight, first_bias, second_weight, _), (first, second) = parameters, ctx.layers
    flat_grad, flat = output_grad.reshape(-1, output_grad.shape[-1]), x.reshape(-1, x.shape[-1])
    hidden = multiply(flat, first_weight, first_bias, first, topologies[0])
    activated, slope = ACTIVATIONS[ctx.activation](hidden)
    hidden_grad = input_grad(flat_grad, second_weight, activated.shape, second, topologies[1]) * slope
    x_grad = input_grad(hidden_grad, first_weight, flat.shape, first, topologies[0])
    dtypes: list[torch.dtype | None] = [ctx.dtype, ctx.dtype]
    first_grads = layer_grads(hidden_grad, flat, (first, topologies[0]), dtypes, True)
    second_grads = layer_grads(flat_grad, activated, (second, topologies[1]), dtypes, True)
    return x_grad.reshape(x.shape), *first_grads, *second_grads


def _runs_whole(x: Tensor, first: "Operands", second: "Operands") -> bool:
    """Whether one kernel serves both layers, of which it makes all gradients."""
    parameters = (*first.own, *second.own)
    trained = all(parameter is None or parameter.requires_grad for parameter in parameters)
    if x.device.type != "cpu" or not (trained and torch.is_grad_enabled()):
        return False
    if len({parameter.dtype for parameter in parameters if parameter is not None}) > 1:
        return False
    from acf.ops.cpu.both_layers import runs_whole

    weights = first.product_weight, second.product_weight
    return runs_whole(x, weights, (first.bias, second.bias), (first.topology, second.topology))


def layer_grads(
    output_grad: Tensor, x: Tensor, place: tuple[Layer, Topology], dtypes: list[torch.dtype | None], twice: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of weight and bias, differentiable ``twice`` or by the ops themselves."""
    layer, topology = place
    if not twice:
        return parameter_grads(output_grad, x, topology, (dtypes[0], dtypes[1]), layer.token)
    return (
        None if dtypes[0] is None else weight_grad(output_grad, x, dtypes[0], layer, topology),
        None if dtypes[1] is None else reference.bias_grad(output_grad, dtypes[1]),
    )


class Operands(NamedTuple):
    """Weight, its cast to the dtype of the input (None if it has that dtype), bias and topology of one layer."""

    weight: Tensor
    cast: Tensor | None
    bias: Tensor | None
    layer: Layer
    topology: Topology

    @property
    def own(self) -> tuple[Tensor, Tensor | None]:
        """The layer's parameters."""
        return self.weight, self.bias

    @property
    def product_weight(self) -> Tensor:
        """The weight in the dtype of the input."""
        return self.weight if self.cast is None else self.cast


def operands_of(x: Tensor, weight: Tensor, bias: Tensor | None, topology: Any, token: Tensor | None) -> Operands:
    """The operands of a layer whose input is ``x``."""
    cast = None if weight.dtype is x.dtype else weight.to(x.dtype)
    return Operands(weight, cast, bias, Layer(LINEAR, token=token), topology)


def _mlp(x: Tensor, *rest: Any) -> Tensor:
    """``x [tokens, in]``, or ``[batch, tokens, in]`` with `tokens_innermost`; likewise the result."""
    first_weight, first_bias, second_weight, second_bias, first_topology, second_topology, activation = rest[:7]
    tokens = (*rest[7:], None, None)
    first = operands_of(x, first_weight, first_bias, first_topology, tokens[0])
    second = operands_of(x, second_weight, second_bias, second_topology, tokens[1])
    leaves = (*first[:3], *second[:3])
    y: Tensor
    if not is_transformed() and _runs_whole(x, first, second):
        batches = x if x.dim() == 3 else x.unsqueeze(0)
        y = _WholeMlp.apply(batches, first, second, activation, *leaves)  # type: ignore[no-untyped-call]
        return y if x.dim() == 3 else y.squeeze(0)
    if x.dim() == 3:
        y = _mlp(x.reshape(-1, x.shape[2]), *rest)
        return y.view(*x.shape[:2], y.shape[1])
    if is_transformed():
        hidden = multiply(x, first_weight, first_bias, first.layer, first_topology)
        return multiply(ACTIVATIONS[activation](hidden)[0], second_weight, second_bias, second.layer, second_topology)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (x, *leaves)):
        y = _BlockMlp.apply(x, first, second, activation, *leaves)  # type: ignore[no-untyped-call]
        return y
    packed = packs_slopes(x, first.product_weight, second.product_weight)
    activated, _ = block_linear_activation(x, first.product_weight, first_bias, activation, packed, *first.topology)
    return block_linear_forward(activated, second.product_weight, second_bias, *second.topology)


_block_mlp = differentiable(
    "block_mlp",
    "(Tensor x, Tensor first_weight, Tensor? first_bias, Tensor second_weight, Tensor? second_bias, "
    "Tensor[] first_topology, Tensor[] second_topology, str activation, "
    "Tensor? first_token=None, Tensor? second_token=None) -> Tensor",
    _mlp,
)


def check_mlp_layers(**layers: MlpLayer) -> None:
    """Refuse what is no `MlpLayer`."""
    for name, layer in layers.items():
        require_kind(layer, MlpLayer, name, "pass an MlpLayer of weight, topology and bias")


def check_follows(layer: MlpLayer, before: MlpLayer) -> None:
    """Refuse a layer that does not take what the one before it gives."""
    check_layer(layer.weight, layer.topology, layer.bias)
    inputs = grid_cols(layer.topology) * layer.weight.shape[2]
    hidden = grid_rows(before.topology) * before.weight.shape[1]
    if inputs != hidden:
        raise SparsityError(
            f"a layer of {inputs} inputs cannot follow one of {hidden} outputs; pass two that fit, in their order"
        )


def block_mlp(x: Tensor, first: MlpLayer, second: MlpLayer, activation: str = "gelu") -> Tensor:
    """``x [..., in]`` through a block-sparse layer, an activation of `ACTIVATIONS` and a second layer: ``[..., out]``.

    Equals `block_linear` twice with the activation between them, to the accuracy of the dtype, and is differentiable
    in ``x``, both weights and both biases.
    """
    check_activation(activation)
    check_mlp_layers(first=first, second=second)
    check_linear(x, first.weight, first.topology, first.bias)
    check_follows(second, first)
    flat = x if tokens_innermost(x) else x.reshape(-1, x.shape[-1])
    parameters = (first.weight, first.bias, second.weight, second.bias)
    topologies = list(first.topology), list(second.topology)
    y = _block_mlp(flat, *parameters, *topologies, activation, first.token, second.token)
    return y.reshape(*x.shape[:-1], y.shape[-1])
