"""Batch normalisation whose statistics come from the convolution before it, as custom ops.

In training a batch norm reads its input twice: once for the mean and the variance of every channel, once to normalise.
The kernel that computes a convolution has the output at hand, so it can take the statistics of what it stores.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from acf.ops import reference
from acf.ops.conv import CONV2D, block_conv2d_forward, fake_conv2d
from acf.ops.differentiate import Gradients, Layer, is_transformed, multiply, product_gradients
from acf.ops.geometry import Conv2dGeometry
from acf.ops.library import GEOMETRY, TOKEN, TOPOLOGY, Op, differentiable
from acf.sparse import BlockTopology

Results = tuple[Tensor, Tensor, Tensor]
"""Output, mean and biased variance of its channels; in float32 where the output is narrower."""


def _with_statistics(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Results:
    y = block_conv2d_forward(x, weight, bias, *rest)
    return y, *reference.channel_statistics(y)


def _fake_with_statistics(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Results:
    y = fake_conv2d(x, weight, bias, *rest)
    dtype = torch.promote_types(x.dtype, torch.float32)
    return y, y.new_empty(y.shape[1], dtype=dtype), y.new_empty(y.shape[1], dtype=dtype)


block_conv2d_statistics_forward = Op(
    "block_conv2d_statistics_forward",
    f"(Tensor x, Tensor weight, Tensor? bias, {TOPOLOGY}, {GEOMETRY}) -> (Tensor, Tensor, Tensor)",
    _with_statistics,
    _fake_with_statistics,
)


class _ProductWithStatistics(torch.autograd.Function):
    """The statistics have no gradient of their own: `batch_norm_with_statistics` differentiates through them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, cast: Any, bias: Any, layer: Layer, topology: Sequence[Tensor]
    ) -> Results:
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        ctx.layer = layer
        weight = weight if cast is None else cast
        ctx.save_for_backward(x, weight, *topology)
        y, mean, variance = block_conv2d_statistics_forward(x, weight, bias, *topology, *layer.geometry)
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor, *_: Any) -> Gradients:
        x_grad, weight_grad, bias_grad = product_gradients(ctx, output_grad)
        return x_grad, weight_grad, None, bias_grad, None, None


def _differentiable_with_statistics(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Results:
    layer, topology = Layer(CONV2D, rest[6:10], rest[10] if len(rest) > 10 else None), rest[:6]
    if is_transformed():
        y = multiply(x, weight, bias, layer, topology)
        return y, *reference.channel_statistics(y.detach())
    cast = None if weight.dtype is x.dtype else weight.to(x.dtype)
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (x, weight, bias)):
        y, mean, variance = _ProductWithStatistics.apply(x, weight, cast, bias, layer, topology)  # type: ignore[no-untyped-call]
    else:
        weight = weight if cast is None else cast
        y, mean, variance = block_conv2d_statistics_forward(x, weight, bias, *topology, *layer.geometry)
    mean.version_of_output = _version(y)
    return y, mean, variance


def _version(y: Tensor) -> int | None:
    """How often ``y`` was changed in place; None where torch does not count."""
    return None if y.is_inference() else y._version


def _are_current(y: Tensor, mean: Tensor) -> bool:
    """Whether statistics come from `block_conv2d_statistics`, and ``y`` was not changed in place since.

    Compilers trace through the ops of this module, so this is decided for a compiled graph when it is made.
    """
    version = _version(y)
    return version is not None and getattr(mean, "version_of_output", None) == version and not is_transformed()


_block_conv2d_statistics = differentiable(
    "block_conv2d_statistics",
    f"(Tensor x, Tensor weight, Tensor? bias, {TOPOLOGY}, {GEOMETRY}, {TOKEN}) -> (Tensor, Tensor, Tensor)",
    _differentiable_with_statistics,
)


def block_conv2d_statistics(
    x: Tensor,
    weight: Tensor,
    topology: BlockTopology,
    geometry: Conv2dGeometry,
    bias: Tensor | None = None,
    token: Tensor | None = None,
) -> Results:
    """`acf.ops.block_conv2d`, and the mean and biased variance ``[out]`` of each channel of what it returns.

    Statistics are float32, float64 for a float64 output, and are constants to autograd; pass them to
    `batch_norm_with_statistics`.
    """
    return _block_conv2d_statistics(x, weight, bias, *topology, *geometry.as_lists(), token)


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, mean: Tensor, variance: Tensor, weight: Any, bias: Any, eps: float) -> Tensor:
        scale = torch.rsqrt(variance + eps)
        ctx.save_for_backward(y, weight, mean, scale)
        ctx.eps = eps
        normalised = (y - _per_channel(mean)) * _per_channel(scale)
        if weight is not None:
            normalised = normalised * _per_channel(weight)
        if bias is not None:
            normalised = normalised + _per_channel(bias)
        return normalised.to(y.dtype)

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor) -> Gradients:
        y, weight, mean, scale = ctx.saved_tensors
        needs_y, _, _, needs_weight, needs_bias, _ = ctx.needs_input_grad
        # Torch's own backward pass: compilers fuse it as that of `torch.nn.BatchNorm2d`, and it can be differentiated.
        y_grad, weight_grad, bias_grad = torch.ops.aten.native_batch_norm_backward(
            output_grad, y, weight, None, None, mean, scale, True, ctx.eps, [needs_y, needs_weight, needs_bias]
        )
        return (
            y_grad if needs_y else None,
            None,
            None,
            weight_grad if needs_weight else None,
            bias_grad if needs_bias else None,
            None,
        )


def _per_channel(values: Tensor) -> Tensor:
    return values[:, None, None]


def _normalise(y: Tensor, mean: Tensor, variance: Tensor, weight: Any, bias: Any, eps: float) -> Results:
    if not _are_current(y, mean):
        normalised = functional.batch_norm(y, None, None, weight, bias, True, 0.0, eps)
        return normalised, *reference.channel_statistics(y.detach())
    normalised = _BatchNorm.apply(y, mean, variance, weight, bias, eps)  # type: ignore[no-untyped-call]
    return normalised, mean.clone(), variance.clone()


_batch_norm_with_statistics = differentiable(
    "batch_norm_with_statistics",
    "(Tensor y, Tensor mean, Tensor variance, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
    _normalise,
)


def batch_norm_with_statistics(
    y: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Results:
    """Batch norm of ``y [batch, channels, h, w]`` by the statistics that `block_conv2d_statistics` gave with it.

    Equals `torch.nn.functional.batch_norm` in training, to the accuracy of the dtype, gradients of any order included:
    ``mean`` and ``variance`` count as functions of ``y``. Also returns mean and biased variance ``[channels]``: the
    given ones, or new ones where these come from elsewhere or ``y`` was changed in place since.
    """
    return _batch_norm_with_statistics(y, mean, variance, weight, bias, eps)
