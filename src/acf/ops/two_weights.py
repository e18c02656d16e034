"""Dense products whose forward pass and input gradient use different weights, and masking that gradients pass through.

Together they are the N:M methods: BDWP masks both, SDGP the input gradient alone, SR-STE the forward weight, straight
through. They are autograd functions of plain torch operations, so that compilers see through them and fuse.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.grad import conv2d_input, conv2d_weight

from acf.errors import SparsityError
from acf.ops.differentiate import add_present, is_transformed
from acf.ops.geometry import Conv2dGeometry


def mask_straight_through(weight: Tensor, mask: Tensor, decay: float = 0.0) -> Tensor:
    """``weight`` where ``mask`` is true, else zero; its gradient reaches every weight as if nothing were masked.

    ``decay * weight`` is added to the gradient of masked weights: the sparse-refined term of SR-STE (Zhou et al. 2021).
    """
    function = _TransformedMask if _is_transformed() else _MaskStraightThrough
    masked: Tensor = function.apply(weight, mask, decay)  # type: ignore[no-untyped-call]
    return masked


def linear_with_two_weights(x: Tensor, weight: Tensor, backward_weight: Tensor) -> Tensor:
    """``x [..., in] @ weight [out, in].T``; the gradient of ``x`` is taken through ``backward_weight [out, in]``.

    The gradient of ``weight`` is the dense product of output gradient and ``x``; ``backward_weight`` has none. Second
    derivatives are those of these gradients, so they do reach ``backward_weight``.
    """
    function = _TransformedLinear if _is_transformed() else _LinearWithTwoWeights
    y: Tensor = function.apply(x, weight, backward_weight)  # type: ignore[no-untyped-call]
    return y


def conv2d_with_two_weights(x: Tensor, weight: Tensor, backward_weight: Tensor, geometry: Conv2dGeometry) -> Tensor:
    """The convolution of ``x [batch, in, h, w]`` with ``weight [out, in, kh, kw]``; gradients as in the linear one."""
    y: Tensor
    if _is_transformed():
        y = _TransformedConv2d.apply(x, weight, backward_weight, geometry)  # type: ignore[no-untyped-call]
    else:
        y = _Conv2dWithTwoWeights.apply(x, weight, backward_weight, *_pairs(geometry))  # type: ignore[no-untyped-call]
    return y


def _is_transformed() -> bool:
    return not torch.compiler.is_compiling() and is_transformed()


# Each function is there twice: for ordinary steps, which a compiler traces, and with the rules that `torch.func` and
# forward mode need. Compilers take no rule for tangents, and ``setup_context`` would cost 30 microseconds a call.


class _MaskStraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, mask: Tensor, decay: float) -> Tensor:
        ctx.decay = decay
        if decay:
            ctx.save_for_backward(weight, mask)
        return torch.where(mask, weight, 0.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        if ctx.decay:
            weight, mask = ctx.saved_tensors
            gradient = gradient + ctx.decay * torch.where(mask, 0.0, weight)
        return gradient, None, None


class _TransformedMask(torch.autograd.Function):
    generate_vmap_rule = True
    backward = _MaskStraightThrough.backward

    @staticmethod
    def forward(weight: Tensor, mask: Tensor, decay: float) -> Tensor:
        return torch.where(mask, weight, 0.0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        weight, mask, ctx.decay = inputs
        ctx.save_for_backward(weight, mask)

    @staticmethod
    def jvp(ctx: Any, weight: Tensor, *_: Any) -> Tensor:
        if ctx.decay:
            raise SparsityError(
                f"the decay {ctx.decay} of masked weights (SR-STE) is added to their gradient and has no tangent; "
                "use reverse mode, or an NMSparsity with decay 0"
            )
        return weight.clone()


class _LinearWithTwoWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, backward_weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, backward_weight)
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, backward_weight = ctx.saved_tensors
        input_grad = gradient @ backward_weight if ctx.needs_input_grad[0] else None
        weight_grad = None
        if ctx.needs_input_grad[1]:
            weight_grad = gradient.reshape(-1, gradient.shape[-1]).T @ x.reshape(-1, x.shape[-1])
        return input_grad, weight_grad, None


class _TransformedLinear(torch.autograd.Function):
    """The tangent goes through ``backward_weight`` like the gradient, so that one is the transpose of the other."""

    generate_vmap_rule = True
    backward = _LinearWithTwoWeights.backward

    @staticmethod
    def forward(x: Tensor, weight: Tensor, backward_weight: Tensor) -> Tensor:
        return F.linear(x, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, _, backward_weight = inputs
        ctx.save_for_backward(x, backward_weight)
        ctx.save_for_forward(x, backward_weight)

    @staticmethod
    def jvp(ctx: Any, x: Tensor | None, weight: Tensor | None, _: Any) -> Tensor | None:
        primal_x, backward_weight = ctx.saved_tensors
        return add_present(
            None if x is None else F.linear(x, backward_weight),
            None if weight is None else F.linear(primal_x, weight),
        )


class _Conv2dWithTwoWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, backward_weight: Tensor, *geometry: Any) -> Tensor:
        ctx.save_for_backward(x, backward_weight)
        ctx.geometry = geometry
        return torch.conv2d(x, weight, None, *geometry)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, backward_weight = ctx.saved_tensors
        input_grad = weight_grad = None
        if ctx.needs_input_grad[0]:
            input_grad = conv2d_input(x.shape, backward_weight, gradient, *ctx.geometry)  # type: ignore[no-untyped-call]
        if ctx.needs_input_grad[1]:
            weight_grad = conv2d_weight(x, backward_weight.shape, gradient, *ctx.geometry)  # type: ignore[no-untyped-call]
        return input_grad, weight_grad, None, *[None] * len(ctx.geometry)


class _TransformedConv2d(torch.autograd.Function):
    """The tangent is as in `_TransformedLinear`; ``geometry`` is one object, since `torch.func` would flatten pairs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, backward_weight: Tensor, geometry: Conv2dGeometry) -> Tensor:
        return torch.conv2d(x, weight, None, *_pairs(geometry))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, _, backward_weight, geometry = inputs
        ctx.geometry = _pairs(geometry)
        ctx.save_for_backward(x, backward_weight)
        ctx.save_for_forward(x, backward_weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _Conv2dWithTwoWeights.backward(ctx, gradient)[:4]

    @staticmethod
    def jvp(ctx: Any, x: Tensor | None, weight: Tensor | None, *_: Any) -> Tensor | None:
        primal_x, backward_weight = ctx.saved_tensors
        return add_present(
            None if x is None else torch.conv2d(x, backward_weight, None, *ctx.geometry),
            None if weight is None else torch.conv2d(primal_x, weight, None, *ctx.geometry),
        )


def _pairs(geometry: Conv2dGeometry) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    return geometry.stride, geometry.padding, geometry.dilation
