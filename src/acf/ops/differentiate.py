"""Derivatives of every order and both modes for the sparse products, which are linear in the input and in the weight.

The derivatives of a product are products: the three ops of a `SparseProduct` are closed under differentiation. An
ordinary backward pass calls the ops themselves. Where a derivative may be differentiated again (``create_graph=True``,
`torch.func`), it is built of the functions of this module, which are differentiable in turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from acf.ops import reference

Dtypes = tuple[torch.dtype | None, torch.dtype | None]
Gradients = tuple[Tensor | None, ...]


class SparseProduct(NamedTuple):
    """The ops of one kind of product; ``rest`` is the topology's six tensors and what else the ops take.

    Tensors among the latter, such as the token offsets of experts, count as part of the topology here.

    ``multiply(x, weight, bias, *rest)`` is the product; ``input_grad(output_grad, weight, input_size, rest)`` and
    ``weight_grad(output_grad, x, rest, dtype, layer)`` its gradients. ``parameter_grads(output_grad, x, rest, dtypes,
    layer)`` gives the gradients of weight and bias, each in its dtype, or None where that is None.
    """

    multiply: Callable[..., Tensor]
    input_grad: Callable[[Tensor, Tensor, Sequence[int], tuple[Any, ...]], Tensor]
    weight_grad: Callable[[Tensor, Tensor, tuple[Any, ...], torch.dtype, Tensor | None], Tensor]
    parameter_grads: Callable[
        [Tensor, Tensor, tuple[Any, ...], Dtypes, Tensor | None], tuple[Tensor | None, Tensor | None]
    ]


Topology = Sequence[Tensor]


@dataclass(frozen=True)
class Layer:
    """What a product needs besides tensors that may be transformed: its ops, the geometry, and the layer's token.

    ``geometry`` is what the ops take after the topology. `torch.func` sees no tensors in an object of this class.
    """

    product: SparseProduct
    geometry: tuple[list[int], ...] = ()
    token: Tensor | None = None


def is_transformed() -> bool:
    """Whether a transform of `torch.func` or forward-mode differentiation is active."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None, layer: Layer, topology: Topology) -> Tensor:
    """The product, differentiable in ``x``, ``weight`` and ``bias``; the weight is cast to the dtype of ``x``."""
    transformed = is_transformed()
    trained = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    if not (transformed or (trained and torch.is_grad_enabled())):
        return layer.product.multiply(x, weight.to(x.dtype), bias, *topology, *layer.geometry)
    # The cast is an input of its own: second derivatives reach the weight through it, while the first derivative goes
    # to the weight directly, in the weight's own dtype.
    cast = None if weight.dtype is x.dtype else weight.to(x.dtype)
    y: Tensor
    if transformed:
        y = _TransformedProduct.apply(x, weight, cast, bias, layer, *topology)  # type: ignore[no-untyped-call]
    else:
        y = _Product.apply(x, weight, cast, bias, layer, topology)  # type: ignore[no-untyped-call]
    return y


def product_gradients(ctx: Any, output_grad: Tensor) -> Gradients:
    """Gradients of x, weight and bias, from what `_Product` keeps in ``ctx``."""
    x, weight, *topology = ctx.saved_tensors
    layer: Layer = ctx.layer
    needs_x, needs_weight, _, needs_bias, *_ = ctx.needs_input_grad
    dtypes = ctx.dtypes[0] if needs_weight else None, ctx.dtypes[1] if needs_bias else None
    if not torch.is_grad_enabled():
        product, rest = layer.product, (*topology, *layer.geometry)
        x_grad = product.input_grad(output_grad, weight, x.shape, rest) if needs_x else None
        return x_grad, *product.parameter_grads(output_grad, x, rest, dtypes, layer.token)
    return (
        input_grad(output_grad, weight, x.shape, layer, topology) if needs_x else None,
        None if dtypes[0] is None else weight_grad(output_grad, x, dtypes[0], layer, topology),
        None if dtypes[1] is None else reference.bias_grad(output_grad, dtypes[1]),
    )


class _Product(torch.autograd.Function):
    """The product of an ordinary training step: without ``setup_context``, which costs several microseconds a call."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, cast: Any, bias: Any, layer: Layer, topology: Topology) -> Tensor:
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        ctx.layer = layer
        weight = weight if cast is None else cast
        ctx.save_for_backward(x, weight, *topology)
        return layer.product.multiply(x, weight, bias, *topology, *layer.geometry)

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor) -> Gradients:
        x_grad, weight_grad, bias_grad = product_gradients(ctx, output_grad)
        return x_grad, weight_grad, None, bias_grad, None, None


class _TransformedProduct(torch.autograd.Function):
    """The same under `torch.func` and forward-mode differentiation."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, cast: Any, bias: Any, layer: Layer, *topology: Tensor) -> Tensor:
        return layer.product.multiply(x, weight if cast is None else cast, bias, *topology, *layer.geometry)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, cast, bias, ctx.layer, *topology = inputs
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        saved = (x, weight if cast is None else cast, *topology)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor) -> Gradients:
        x_grad, weight_grad, bias_grad = product_gradients(ctx, output_grad)
        return _for_all_inputs(ctx, x_grad, weight_grad, None, bias_grad)

    @staticmethod
    def jvp(ctx: Any, x: Any, weight: Any, cast: Any, bias: Any, *_: Any) -> Tensor | None:
        """Product rule: tangent of ``x`` times weight, plus ``x`` times tangent of the weight, plus the bias's."""
        primal_x, primal_weight, *topology = ctx.saved_tensors
        if ctx.dtypes[0] is not primal_weight.dtype:
            weight = cast
        tangent = add_present(
            None if x is None else multiply(x, primal_weight, None, ctx.layer, topology),
            None if weight is None else multiply(primal_x, weight, None, ctx.layer, topology),
        )
        if bias is None:
            return tangent
        if tangent is None:
            tangent = torch.zeros_like(multiply(primal_x, primal_weight, None, ctx.layer, topology))
        bias_tangent: Tensor = bias.to(tangent.dtype).reshape(-1, *[1] * (tangent.dim() - 2))
        return tangent + bias_tangent


def _for_all_inputs(ctx: Any, *gradients: Tensor | None) -> Gradients:
    """The gradients of the first inputs, and None for each of the others."""
    return *gradients, *(None,) * (len(ctx.needs_input_grad) - len(gradients))


def add_present(*terms: Tensor | None) -> Tensor | None:
    """The sum of the terms that are not None; None if all are."""
    present = [term for term in terms if term is not None]
    return sum(present[1:], start=present[0]) if present else None


def input_grad(output_grad: Tensor, weight: Tensor, input_size: torch.Size, layer: Layer, topology: Topology) -> Tensor:
    """The gradient of ``x``, differentiable in ``output_grad`` and ``weight``."""
    gradient: Tensor = _InputGrad.apply(  # type: ignore[no-untyped-call]
        output_grad, weight, _InputSize(input_size), layer, *topology
    )
    return gradient


def weight_grad(output_grad: Tensor, x: Tensor, dtype: torch.dtype, layer: Layer, topology: Topology) -> Tensor:
    """The gradient of the packed weight in ``dtype``, differentiable in ``output_grad`` and ``x``."""
    gradient: Tensor = _WeightGrad.apply(output_grad, x, dtype, layer, *topology)  # type: ignore[no-untyped-call]
    return gradient


@dataclass(frozen=True)
class _InputSize:
    """The shape of an input as one value: `torch.func` would take a list for several arguments."""

    shape: Sequence[int]


class _Gradient(torch.autograd.Function):
    """A gradient of a product: linear in the output gradient, its first argument, and in the other operand.

    ``form`` is what else the gradient's shape and dtype depend on.
    """

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        output_grad, other, ctx.form, layer, *topology = inputs
        ctx.layer = replace(layer, token=None)  # observers see the gradients of the loss, not of its derivatives
        ctx.save_for_backward(output_grad, other, *topology)
        ctx.save_for_forward(output_grad, other, *topology)

    @classmethod
    def jvp_of(cls, ctx: Any, output_grad: Tensor | None, other: Tensor | None) -> Tensor | None:
        """Product rule, as in `_TransformedProduct.jvp`."""
        primal_grad, primal_other, *topology = ctx.saved_tensors
        rest = (ctx.form, ctx.layer, *topology)
        return add_present(
            None if output_grad is None else cls.apply(output_grad, primal_other, *rest),  # type: ignore[no-untyped-call]
            None if other is None else cls.apply(primal_grad, other, *rest),  # type: ignore[no-untyped-call]
        )


class _InputGrad(_Gradient):
    @staticmethod
    def forward(output_grad: Tensor, weight: Tensor, form: _InputSize, layer: Layer, *topology: Tensor) -> Tensor:
        return layer.product.input_grad(output_grad, weight, form.shape, (*topology, *layer.geometry))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        output_grad, weight, *topology = ctx.saved_tensors
        layer, (needs_first, needs_second) = ctx.layer, ctx.needs_input_grad[:2]
        first = multiply(gradient, weight, None, layer, topology) if needs_first else None
        second = weight_grad(output_grad, gradient, weight.dtype, layer, topology) if needs_second else None
        return _for_all_inputs(ctx, first, second)

    @staticmethod
    def jvp(ctx: Any, output_grad: Tensor | None, weight: Tensor | None, *_: Any) -> Tensor | None:
        return _InputGrad.jvp_of(ctx, output_grad, weight)


class _WeightGrad(_Gradient):
    @staticmethod
    def forward(output_grad: Tensor, x: Tensor, form: torch.dtype, layer: Layer, *topology: Tensor) -> Tensor:
        return layer.product.weight_grad(output_grad, x, (*topology, *layer.geometry), form, layer.token)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        output_grad, x, *topology = ctx.saved_tensors
        layer, (needs_first, needs_second) = ctx.layer, ctx.needs_input_grad[:2]
        gradient = gradient.to(x.dtype)
        first = multiply(x, gradient, None, layer, topology) if needs_first else None
        second = input_grad(output_grad, gradient, x.shape, layer, topology) if needs_second else None
        return _for_all_inputs(ctx, first, second)

    @staticmethod
    def jvp(ctx: Any, output_grad: Tensor | None, x: Tensor | None, *_: Any) -> Tensor | None:
        return _WeightGrad.jvp_of(ctx, output_grad, x)
