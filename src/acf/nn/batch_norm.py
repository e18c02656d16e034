"""Batch normalisation that takes its statistics from the block-sparse convolution before it."""

import torch
from torch import Tensor, nn

from acf.nn.fx_leaf import FxLeaf
from acf.ops import batch_norm_after_conv2d

STATISTICS_BLOCKS = {"cuda": (32, 64, 128), "cpu": (8, 16, 32, 64)}
"""Sizes of square blocks whose convolution kernels take statistics in their epilogue, by type of device."""

STATISTICS_DTYPES = {"cuda": (torch.bfloat16, torch.float16), "cpu": (torch.float32, torch.bfloat16)}
"""The dtypes of these kernels."""


class FusedBatchNorm2d(FxLeaf, nn.BatchNorm2d):
    """An `nn.BatchNorm2d` that reads its input once in training, if the convolution before it gives statistics.

    Made in place by `acf.fuse_batch_norms_`. Names, parameters, buffers and checkpoints are those of `nn.BatchNorm2d`,
    and so are the results, to the accuracy of the dtype. In eager passes, in evaluation, with cumulative averages
    (``momentum=None``) and for any other input it is an `nn.BatchNorm2d`.
    """

    def forward(self, x: Tensor) -> Tensor:
        """``x [batch, channels, h, w]`` normalised over all axes but the second."""
        if not (self.training and self._is_fused()) or self.momentum is None:
            return super().forward(x)
        self._check_input_dim(x)
        averages = None
        if self.track_running_stats and self.running_mean is not None and self.running_var is not None:
            averages = self.running_mean, self.running_var
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        return batch_norm_after_conv2d(x, self.weight, self.bias, averages, self.momentum, self.eps)

    @staticmethod
    def _is_fused() -> bool:
        """Whether a compiler makes one kernel of the steps that normalise; run one by one they would not pay."""
        return torch.compiler.is_compiling()
