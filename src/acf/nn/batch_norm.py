"""Batch normalisation that takes its statistics from the block-sparse convolution before it."""

from typing import Any

import torch
from torch import Tensor, nn

from acf.nn.fx_leaf import FxLeaf
from acf.ops import batch_norm_with_statistics

STATISTICS_BLOCKS = ((32, 32), (64, 64), (128, 128))
"""Block shapes whose convolution kernels take statistics in their epilogue."""

STATISTICS_DTYPES = (torch.bfloat16, torch.float16)
"""The dtypes of these kernels."""


class StatisticsLink:
    """Where a convolution leaves the statistics of its output for the batch norm that reads it.

    Both layers hold the link. A copy of a model has links of its own, and nothing of it is saved.
    """

    def __init__(self) -> None:
        self._offered: tuple[Tensor, Tensor, Tensor] | None = None

    def offer(self, y: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Leave ``mean`` and biased ``variance [channels]`` of ``y [batch, channels, h, w]``."""
        self._offered = (y, mean, variance)

    def take(self, y: Tensor) -> tuple[Tensor, Tensor] | None:
        """Mean and variance of ``y``; None if there are none, or they are of another tensor."""
        offered, self._offered = self._offered, None
        if offered is None or offered[0] is not y:
            return None
        return offered[1], offered[2]

    def __deepcopy__(self, memo: Any) -> "StatisticsLink":
        return StatisticsLink()

    def __reduce__(self) -> tuple[Any, ...]:
        return StatisticsLink, ()


class LinkedBatchNorm2d(FxLeaf, nn.BatchNorm2d):
    """An `nn.BatchNorm2d` that reads its input once in training, where the convolution before it gives statistics.

    Made in place by `acf.fuse_batch_norms_`. Names, parameters, buffers and checkpoints are those of `nn.BatchNorm2d`,
    and so are the results, to the accuracy of the dtype. Without statistics of just this input it is an
    `nn.BatchNorm2d`.
    """

    link: StatisticsLink

    def forward(self, x: Tensor) -> Tensor:
        """``x [batch, channels, h, w]`` normalised over all axes but the second."""
        statistics = self.link.take(x)
        if statistics is None or not self.training or x.numel() <= self.num_features:
            return super().forward(x)
        y, mean, variance = batch_norm_with_statistics(x, *statistics, self.weight, self.bias, self.eps)
        if self.track_running_stats and self.running_mean is not None:
            self._average(mean, variance, x.numel() // self.num_features)
        return y

    @torch.no_grad()
    def _average(self, mean: Tensor, variance: Tensor, count: int) -> None:
        """Update the running mean and the running, unbiased variance of ``count`` values per channel."""
        factor: float | Tensor = self.momentum or 0.0
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / self.num_batches_tracked.to(mean.dtype)
        unbiased = variance * (count / (count - 1))
        for running, latest in ((self.running_mean, mean), (self.running_var, unbiased)):
            if running is not None:
                running.copy_(running.to(latest.dtype) * (1.0 - factor) + latest * factor)
