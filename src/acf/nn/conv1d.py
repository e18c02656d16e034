"""1-D convolutions without groups: the kind, and the block-sparse counterpart of `torch.nn.Conv1d`.

A 1-D convolution is computed as a 2-D one over images of height 1, which costs nothing: no value is copied.
"""

from typing import Any, cast

from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.conv2d import BlockSparseConv2d, Conv2dKind, Conv2dSettings
from acf.nn.kind import TracedInput
from acf.sparse import BlockLayout, conv_weight_to_matrix, matrix_to_conv_weight


class BlockSparseConv1d(BlockSparseConv2d):
    """1-D convolution where only the present blocks of the ``[out, k*in]`` weight matrix exist.

    A block is ``block_height`` output channels by ``block_width`` input channels at one kernel tap.
    Made from a dense layer by `acf.sparsify_`; ``weight`` is ``[nnz, block_height, block_width]``.
    """

    kind_name = "conv1d"

    def __init__(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> None:
        matrix = _to_matrix(cast(Tensor, dense.weight))
        BlockSparseLayer.__init__(self, layout, matrix, mask, cast(nn.Parameter | None, dense.bias))
        self.settings = Conv2dSettings.of(cast(nn.Conv1d, dense))
        self.in_channels, self.out_channels = self.settings.channels

    def forward(self, x: Tensor) -> Tensor:
        """``x [batch, in, length]`` to ``[batch, out, out_length]``; ``[in, length]`` to ``[out, out_length]``."""
        if x.dim() not in (2, 3):
            raise SparsityError(
                f"a 1-D convolution got an input of shape {list(x.shape)}; pass [batch, {self.in_channels}, length] or "
                f"[{self.in_channels}, length]"
            )
        return super().forward(x.unsqueeze(-2)).squeeze(-2)

    def to_dense(self) -> nn.Module:
        """A plain `torch.nn.Conv1d` that computes the same; absent blocks become zeros."""
        weight = matrix_to_conv_weight(self.forward_matrix(), self.settings.geometry.kernel_size)
        return self.settings.dense.build(self, weight.squeeze(2))


class Conv1dKind(Conv2dKind):
    """`torch.nn.Conv1d`: the weight becomes ``[out, k*in]``, the input images of height 1."""

    dense_class = nn.Conv1d
    nm = None

    def block_sparse(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> BlockSparseConv1d:
        """The block-sparse layer that holds the blocks of ``mask``."""
        return BlockSparseConv1d(dense, layout, mask)

    def weight(self, module: Any) -> Tensor:
        """``[out, in, k]``."""
        return cast(Tensor, module.weight)

    def weight_matrix(self, module: Any) -> Tensor:
        """``[out, k*in]``, detached."""
        return _to_matrix(self.weight(module).detach())

    def traced_input(self, module: Any, x: Tensor, output: Tensor) -> TracedInput:
        """``[batch, in, 1, length]``, padded where the convolution itself does not pad."""
        images = x.unsqueeze(-2)
        return super().traced_input(module, images.unsqueeze(0) if x.dim() == 2 else images, output)

    def traced_gradient(self, gradient: Tensor) -> Tensor:
        """``[batch, out, 1, out_length]``."""
        return super().traced_gradient(gradient.unsqueeze(-2))


def _to_matrix(weight: Tensor) -> Tensor:
    return conv_weight_to_matrix(weight.unsqueeze(2))
