"""Dense products whose forward pass and input gradient use different weights, and masking that gradients pass through.

Together they are the N:M methods: BDWP masks both, SDGP the input gradient alone, SR-STE the forward weight, straight
through. They are autograd functions of plain torch operations, so that compilers see through them and fuse.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.grad import conv2d_input, conv2d_weight

from acf.ops.geometry import Conv2dGeometry


def mask_straight_through(weight: Tensor, mask: Tensor, decay: float = 0.0) -> Tensor:
    """``weight`` where ``mask`` is true, else zero; its gradient reaches every weight as if nothing were masked.

    ``decay * weight`` is added to the gradient of masked weights: the sparse-refined term of SR-STE (Zhou et al. 2021).
    """
    masked: Tensor = _MaskStraightThrough.apply(weight, mask, decay)  # type: ignore[no-untyped-call]
    return masked


def linear_with_two_weights(x: Tensor, weight: Tensor, backward_weight: Tensor) -> Tensor:
    """``x [..., in] @ weight [out, in].T``; the gradient of ``x`` is taken through ``backward_weight [out, in]``.

    The gradient of ``weight`` is the dense product of output gradient and ``x``; ``backward_weight`` has none.
    """
    y: Tensor = _LinearWithTwoWeights.apply(x, weight, backward_weight)  # type: ignore[no-untyped-call]
    return y


def conv2d_with_two_weights(x: Tensor, weight: Tensor, backward_weight: Tensor, geometry: Conv2dGeometry) -> Tensor:
    """The convolution of ``x [batch, in, h, w]`` with ``weight [out, in, kh, kw]``; gradients as in the linear one."""
    y: Tensor = _Conv2dWithTwoWeights.apply(  # type: ignore[no-untyped-call]
        x, weight, backward_weight, geometry.stride, geometry.padding, geometry.dilation
    )
    return y


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
        return input_grad, weight_grad, None, None, None, None
