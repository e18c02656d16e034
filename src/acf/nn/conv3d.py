"""3-D convolutions without groups: the kind, and the block-sparse counterpart of `torch.nn.Conv3d`.

A 3-D convolution is computed as one 2-D convolution. The depth taps become channels: the image at output depth ``d``
holds the ``kd`` input slices that ``d`` sees, one after the other, so there are ``batch * out_depth`` images of
``kd * in`` channels. The input is copied ``kd / stride`` times for that.

The alternative is a product for every depth tap and their sum. It took 1.5 times as long, forward and backward (two
cores, 128 channels, kernel of 3, 90 % sparse in blocks of 16), and kept as many copies of the input for the backward
pass, one per tap. It also needs a topology for every tap, whose number of blocks changes with every move.
"""

from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn.autocast import cast_for_autocast
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.conv2d import BlockSparseConv2d, Conv2dKind, Conv2dSettings
from acf.nn.dense_conv import DenseConv
from acf.nn.kind import TracedInput
from acf.ops import Conv2dGeometry
from acf.sparse import BlockLayout


@dataclass(frozen=True)
class Conv3dSettings(Conv2dSettings):
    """The same for a 3-D convolution; ``depth`` is kernel size, stride and dilation along the depth.

    ``explicit_padding`` is ``(left, right, top, bottom, front, back)``.
    """

    depth: tuple[int, int, int]

    @classmethod
    def of_3d(cls, dense: nn.Conv3d) -> "Conv3dSettings":
        """The settings of a dense layer."""
        kernel, stride, dilation = (
            cast(tuple[int, int, int], each) for each in (dense.kernel_size, dense.stride, dense.dilation)
        )
        explicit, padding = tuple(dense._reversed_padding_repeated_twice), (0, 0)
        if dense.padding_mode == "zeros" and not isinstance(dense.padding, str):
            front, *padding_2d = dense.padding
            padding = padding_2d[0], padding_2d[1]
            explicit = (0, 0, 0, 0, front, front) if front else ()
        geometry = Conv2dGeometry(kernel[1:], stride[1:], padding, dilation[1:])
        depth = kernel[0], stride[0], dilation[0]
        return cls(DenseConv.of(dense), dense.padding_mode, explicit, geometry, depth)

    def images(self, x: Tensor, groups: int = 1) -> Tensor:
        """``x [batch, in, d, h, w]`` as ``[batch * out_depth, kd * in, h, w]``, depth taps outermost in a group."""
        kernel, stride, dilation = self.depth
        windows = self.pad(x).unfold(2, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
        batch, channels, *rest = windows.shape
        by_group = windows.reshape(batch, groups, channels // groups, *rest)  # [..., out_depth, h, w, kd]
        return by_group.permute(0, 3, 1, 6, 2, 4, 5).flatten(2, 4).flatten(0, 1)


class BlockSparseConv3d(BlockSparseConv2d):
    """3-D convolution where only the present blocks of the ``[out, kh*kw*kd*in]`` weight matrix exist.

    A block is ``block_height`` output channels by ``block_width`` input channels at one kernel tap.
    Made from a dense layer by `acf.sparsify_`; ``weight`` is ``[nnz, block_height, block_width]``.
    """

    kind_name = "conv3d"
    settings: Conv3dSettings

    def __init__(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> None:
        matrix = _to_matrix(cast(Tensor, dense.weight))
        BlockSparseLayer.__init__(self, layout, matrix, mask, cast(nn.Parameter | None, dense.bias))
        self.settings = Conv3dSettings.of_3d(cast(nn.Conv3d, dense))
        self.in_channels, self.out_channels = self.settings.channels

    def forward(self, x: Tensor) -> Tensor:
        """``x [batch, in, d, h, w]`` to ``[batch, out, od, oh, ow]``; the same without a batch."""
        if x.dim() not in (4, 5):
            raise SparsityError(
                f"a 3-D convolution got an input of shape {list(x.shape)}; pass [batch, {self.in_channels}, depth, "
                f"height, width] or [{self.in_channels}, depth, height, width]"
            )
        if x.dim() == 4:
            return self.forward(x.unsqueeze(0)).squeeze(0)
        (x,) = cast_for_autocast(x)
        y = self.convolve(self.settings.images(x))
        return y.reshape(x.shape[0], -1, *y.shape[1:]).transpose(1, 2).contiguous()

    def to_dense(self) -> nn.Module:
        """A plain `torch.nn.Conv3d` that computes the same; absent blocks become zeros."""
        height, width = self.settings.geometry.kernel_size
        taps = self.forward_matrix().reshape(self.out_channels, height, width, self.settings.depth[0], -1)
        return self.settings.dense.build(self, taps.permute(0, 4, 3, 1, 2).contiguous())


class Conv3dKind(Conv2dKind):
    """`torch.nn.Conv3d`: the weight becomes ``[out, kh*kw*kd*in]``, the input images of ``kd * in`` channels."""

    dense_class = nn.Conv3d
    nm = None

    def block_sparse(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> BlockSparseConv3d:
        """The block-sparse layer that holds the blocks of ``mask``."""
        return BlockSparseConv3d(dense, layout, mask)

    def weight(self, module: Any) -> Tensor:
        """``[out, in, kd, kh, kw]``."""
        return cast(Tensor, module.weight)

    def weight_matrix(self, module: Any) -> Tensor:
        """``[out, kh*kw*kd*in]``, detached."""
        return _to_matrix(self.weight(module).detach())

    def traced_input(self, module: Any, x: Tensor, output: Tensor) -> TracedInput:
        """``[batch * out_depth, kd * in, h, w]``: the images of the 2-D convolution that is computed."""
        settings: Conv3dSettings = getattr(module, "settings", None) or Conv3dSettings.of_3d(module)
        groups = getattr(module, "groups", 1)
        return TracedInput(settings.images(x.unsqueeze(0) if x.dim() == 4 else x, groups), settings.geometry, groups)

    def traced_gradient(self, gradient: Tensor) -> Tensor:
        """``[batch * out_depth, out, oh, ow]``."""
        batched = gradient.unsqueeze(0) if gradient.dim() == 4 else gradient
        return batched.transpose(1, 2).flatten(0, 1)


def _to_matrix(weight: Tensor) -> Tensor:
    """``[out, in, kd, kh, kw]`` as ``[out, kh*kw*kd*in]``."""
    return weight.permute(0, 3, 4, 2, 1).reshape(weight.shape[0], -1)
