"""Batch normalisation whose statistics come from the convolution before it, as custom ops.

In training a batch norm reads its input twice: once for the mean and the variance of every channel, once to normalise.
The kernel that computes a convolution has the output at hand, so it can take the statistics of what it stores.

The convolution leaves the statistics on its output, as an attribute of the tensor, and the batch norm looks for them
there. So they never meet another tensor. Compilers trace through both ops: for a compiled graph the look is taken when
the graph is made.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from acf.ops import reference
from acf.ops.conv import CONV2D, block_conv2d_forward, check_conv2d, fake_conv2d
from acf.ops.differentiate import Gradients, Layer, is_transformed, multiply, product_gradients
from acf.ops.geometry import Conv2dGeometry
from acf.ops.library import GEOMETRY, TOKEN, TOPOLOGY, Op, differentiable
from acf.sparse import BlockTopology

Results = tuple[Tensor, Tensor, Tensor]
"""Output, mean and biased variance of its channels; in float32 where the output is narrower."""


class ChannelStatistics(NamedTuple):
    """Mean and biased variance ``[channels]`` of a tensor that had been changed in place ``version`` times."""

    mean: Tensor
    variance: Tensor
    version: int


def _leave(y: Tensor, mean: Tensor, variance: Tensor) -> None:
    if not y.is_inference():  # such a tensor does not count its changes
        y.channel_statistics = ChannelStatistics(mean, variance, y._version)  # type: ignore[attr-defined]


def _statistics_of(y: Tensor) -> ChannelStatistics | None:
    """What a convolution left on ``y``; None if there is nothing, or ``y`` was changed in place since."""
    found: ChannelStatistics | None = getattr(y, "channel_statistics", None)
    return found if found is not None and not y.is_inference() and found.version == y._version else None


def pass_on_statistics(y: Tensor, view: Tensor) -> None:
    """Leave the statistics of ``y``, if it has any, on a ``view`` of all its values."""
    statistics = _statistics_of(y)
    if statistics is not None:
        _leave(view, statistics.mean, statistics.variance)


def convolve_then_read(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Results:
    """The convolution, and its statistics by a pass of their own."""
    y = block_conv2d_forward(x, weight, bias, *rest)
    return y, *reference.channel_statistics(y)


def _fake_with_statistics(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Results:
    y = fake_conv2d(x, weight, bias, *rest)
    dtype = torch.promote_types(x.dtype, torch.float32)
    return y, y.new_empty(y.shape[1], dtype=dtype), y.new_empty(y.shape[1], dtype=dtype)


block_conv2d_statistics = Op(
    "block_conv2d_statistics",
    f"(Tensor x, Tensor weight, Tensor? bias, {TOPOLOGY}, {GEOMETRY}) -> (Tensor, Tensor, Tensor)",
    convolve_then_read,
    _fake_with_statistics,
)
"""The forward pass of `block_conv2d`, and the mean and biased variance ``[out]`` of what it stores."""


class _ProductWithStatistics(torch.autograd.Function):
    """The statistics have no gradient of their own: `_BatchNorm` differentiates through them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, cast: Any, bias: Any, layer: Layer, topology: Sequence[Tensor]
    ) -> Results:
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        ctx.layer = layer
        weight = weight if cast is None else cast
        ctx.save_for_backward(x, weight, *topology)
        y, mean, variance = block_conv2d_statistics(x, weight, bias, *topology, *layer.geometry)
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor, *_: Any) -> Gradients:
        x_grad, weight_grad, bias_grad = product_gradients(ctx, output_grad)
        return x_grad, weight_grad, None, bias_grad, None, None


def _conv2d_for_batch_norm(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    layer, topology = Layer(CONV2D, rest[6:10], rest[10] if len(rest) > 10 else None), rest[:6]
    if is_transformed():
        return multiply(x, weight, bias, layer, topology)
    cast = None if weight.dtype is x.dtype else weight.to(x.dtype)
    y: Tensor
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (x, weight, bias)):
        y, mean, variance = _ProductWithStatistics.apply(x, weight, cast, bias, layer, topology)  # type: ignore[no-untyped-call]
    else:
        weight = weight if cast is None else cast
        y, mean, variance = block_conv2d_statistics(x, weight, bias, *topology, *layer.geometry)
    _leave(y, mean, variance)
    return y


_block_conv2d_for_batch_norm = differentiable(
    "block_conv2d_for_batch_norm",
    f"(Tensor x, Tensor weight, Tensor? bias, {TOPOLOGY}, {GEOMETRY}, {TOKEN}) -> Tensor",
    _conv2d_for_batch_norm,
)


def block_conv2d_for_batch_norm(
    x: Tensor,
    weight: Tensor,
    topology: BlockTopology,
    geometry: Conv2dGeometry,
    bias: Tensor | None = None,
    token: Tensor | None = None,
) -> Tensor:
    """`acf.ops.block_conv2d`, with the statistics of the output left on it for `batch_norm_after_conv2d`."""
    check_conv2d(x, weight, topology, geometry, bias)
    return _block_conv2d_for_batch_norm(x, weight, bias, *topology, *geometry.as_lists(), token)


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


def _batch_norm(y: Tensor, weight: Any, bias: Any, running: Sequence[Tensor], momentum: float, eps: float) -> Tensor:
    statistics, count = _statistics_of(y), y.numel() // y.shape[1]
    if statistics is None or count < 2 or is_transformed():
        mean_average, variance_average = running or (None, None)
        return functional.batch_norm(y, mean_average, variance_average, weight, bias, True, momentum, eps)
    mean, variance, _ = statistics
    for average, latest in zip(running, (mean, variance * (count / (count - 1))), strict=False):
        average.copy_(average.to(latest.dtype) * (1.0 - momentum) + latest * momentum)
    normalised: Tensor = _BatchNorm.apply(y, mean, variance, weight, bias, eps)  # type: ignore[no-untyped-call]
    return normalised


_batch_norm_after_conv2d = differentiable(
    "batch_norm_after_conv2d",
    "(Tensor y, Tensor? weight, Tensor? bias, Tensor(a!)[] running, float momentum, float eps) -> Tensor",
    _batch_norm,
)


def batch_norm_after_conv2d(
    y: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running: tuple[Tensor, Tensor] | None,
    momentum: float,
    eps: float,
) -> Tensor:
    """`torch.nn.functional.batch_norm` of ``y [batch, channels, h, w]`` in training, gradients of any order included.

    Where `block_conv2d_for_batch_norm` gave ``y``, and nothing has changed it since, its statistics come from there
    and are not taken again. ``running`` are the running mean and variance ``[channels]``, which are updated.
    """
    return _batch_norm_after_conv2d(y, weight, bias, list(running or ()), momentum, eps)
