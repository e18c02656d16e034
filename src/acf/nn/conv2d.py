"""2-D convolutions without groups: the kind, and the block-sparse and N:M counterparts of `torch.nn.Conv2d`."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from acf.nn.autocast import cast_for_autocast
from acf.nn.batch_norm import STATISTICS_BLOCKS, STATISTICS_DTYPES
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.dense_conv import DenseConv, grouped_reason
from acf.nn.kind import LayerKind, TracedInput
from acf.nn.nm_layer import NMLayer
from acf.nn.nm_spec import NMSparsity
from acf.ops import (
    Conv2dGeometry,
    block_conv2d,
    block_conv2d_for_batch_norm,
    block_conv2d_gradient_norms,
    conv2d_with_two_weights,
)
from acf.sparse import BlockLayout, conv_weight_to_matrix, frobenius_norms, matrix_to_conv_weight

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]


@dataclass(frozen=True)
class Conv2dSettings:
    """The dense convolution that a layer was made from, and the 2-D convolution that is computed of it.

    ``explicit_padding`` is ``(left, right, top, bottom)`` where the input must be padded before the convolution,
    because it is not padded with zeros or not evenly, and empty elsewhere; ``geometry`` is that of the convolution
    after it.
    """

    dense: DenseConv
    padding_mode: PaddingMode
    explicit_padding: tuple[int, ...]
    geometry: Conv2dGeometry

    @classmethod
    def of(cls, dense: nn.Conv1d | nn.Conv2d) -> "Conv2dSettings":
        """The settings of a dense layer; a 1-D convolution is one over images of height 1."""
        declared = dense.padding
        pads_itself = dense.padding_mode == "zeros" and not isinstance(declared, str)
        one_high = len(dense.kernel_size) == 1
        geometry = Conv2dGeometry(
            kernel_size=_pair(dense.kernel_size, 1),
            stride=_pair(dense.stride, 1),
            padding=_pair(cast(tuple[int, ...], declared), 0) if pads_itself else (0, 0),
            dilation=_pair(dense.dilation, 1),
        )
        padding = tuple(dense._reversed_padding_repeated_twice)
        explicit = () if pads_itself else (*padding, 0, 0) if one_high else padding
        return cls(DenseConv.of(dense), dense.padding_mode, explicit, geometry)

    @property
    def channels(self) -> tuple[int, int]:
        """Input and output channels."""
        return self.dense.channels

    def pad(self, x: Tensor) -> Tensor:
        """``x [batch, in, h, w]`` with the padding that the convolution does not do itself."""
        if not self.explicit_padding:
            return x
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        return nn.functional.pad(x, self.explicit_padding, mode=mode)


def _pair(values: tuple[int, ...], height: int) -> tuple[int, int]:
    """A pair as it is; one value with ``height`` before it."""
    first, *rest = values
    return (first, rest[0]) if rest else (height, first)


class BlockSparseConv2d(BlockSparseLayer):
    """2-D convolution where only the present blocks of the ``[out, kh*kw*in]`` weight matrix exist.

    A block is ``block_height`` output channels by ``block_width`` input channels at one kernel tap.
    Made from a dense layer by `acf.sparsify_`; ``weight`` is ``[nnz, block_height, block_width]``.
    """

    kind_name = "conv2d"

    feeds_batch_norm: bool = False
    """Whether a batch norm alone reads the output, as `acf.fuse_batch_norms_` found."""

    def __init__(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> None:
        matrix = conv_weight_to_matrix(cast(Tensor, dense.weight))
        super().__init__(layout, matrix, mask, cast(nn.Parameter | None, dense.bias))
        self.settings = Conv2dSettings.of(cast(nn.Conv2d, dense))
        self.in_channels, self.out_channels = self.settings.channels

    def forward(self, x: Tensor) -> Tensor:
        """``x [batch, in, h, w]`` to ``[batch, out, oh, ow]``; ``[in, h, w]`` to ``[out, oh, ow]``."""
        if x.dim() == 3:
            return self.convolve(self.settings.pad(x.unsqueeze(0))).squeeze(0)
        return self.convolve(self.settings.pad(x))

    def convolve(self, x: Tensor) -> Tensor:
        """The convolution of ``x [batch, in, h, w]``, padded where it does not pad itself: ``[batch, out, oh, ow]``."""
        (x,) = cast_for_autocast(x)
        geometry = self.settings.geometry
        product = block_conv2d_for_batch_norm if self._gives_statistics(x) else block_conv2d
        y = product(x, self.weight, self.topology, geometry, self.bias, self.identity.token)
        return self._probed(y, x, geometry)

    def _gives_statistics(self, x: Tensor) -> bool:
        """Whether the kernel also takes the statistics of its output, for a batch norm in the same compiled graph."""
        if not (self.feeds_batch_norm and self.training and torch.compiler.is_compiling()):
            return False
        (height, width), device = self.block_shape, x.device.type
        has_kernel = height == width and height in STATISTICS_BLOCKS.get(device, ())
        return has_kernel and x.dtype in STATISTICS_DTYPES[device] and (x.is_cuda or _has_channels_innermost(x))

    def gradient_norms(self, output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """Norms of the weight-gradient blocks at ``(rows, cols)``, float32; present or absent alike."""
        return block_conv2d_gradient_norms(output_grad, x, rows, cols, self.block_shape, self.settings.geometry)

    def input_squares(self, x: Tensor) -> Tensor:
        """Mean square of every channel of ``x [batch, in, h, w]``, once per kernel tap: float32 ``[kh*kw*in]``."""
        channels = frobenius_norms(x, dim=(0, 2, 3)).square() / max(1, x.numel() // x.shape[1])
        return channels.repeat(self.settings.geometry.taps)

    def to_dense(self) -> nn.Module:
        """A plain `torch.nn.Conv2d` that computes the same; absent blocks become zeros."""
        weight = matrix_to_conv_weight(self.forward_matrix(), self.settings.geometry.kernel_size)
        return self.settings.dense.build(self, weight)

    def extra_repr(self) -> str:
        """Shape, block and density, for ``print(model)``."""
        return f"{self.settings.dense}, {super().extra_repr()}"


class NMConv2d(NMLayer):
    """2-D convolution with N:M-masked weights; ``weight [out, in, kh, kw]`` stays dense."""

    kind_name = "conv2d"

    def __init__(self, dense: nn.Module, spec: NMSparsity) -> None:
        super().__init__(dense, spec)
        self.settings = Conv2dSettings.of(cast(nn.Conv2d, dense))
        self.in_channels, self.out_channels = self.settings.channels

    def forward(self, x: Tensor) -> Tensor:
        """``x [batch, in, h, w]`` to ``[batch, out, oh, ow]``; ``[in, h, w]`` to ``[out, oh, ow]``."""
        if x.dim() == 3:
            return self._convolve(x.unsqueeze(0)).squeeze(0)
        return self._convolve(x)

    def _convolve(self, x: Tensor) -> Tensor:
        x, geometry = self.settings.pad(x), self.settings.geometry
        weight, backward_weight = self._product_weights()
        if backward_weight is None:
            return torch.conv2d(x, weight, self.bias, geometry.stride, geometry.padding, geometry.dilation)
        x, weight, backward_weight = cast_for_autocast(x, weight, backward_weight)
        y = conv2d_with_two_weights(x, weight, backward_weight, geometry)
        return y if self.bias is None else y + self.bias.to(y.dtype)[:, None, None]

    def to_dense(self) -> nn.Module:
        """A plain `torch.nn.Conv2d` whose forward pass computes the same; masked weights become zeros."""
        return self.settings.dense.build(self, self.forward_weight())


class Conv2dKind(LayerKind):
    """`torch.nn.Conv2d`: the weight becomes ``[out, kh*kw*in]`` (im2col), the input stays an image with a geometry."""

    dense_class: ClassVar[type[nn.Module]] = nn.Conv2d
    nm: ClassVar[type[NMLayer] | None] = NMConv2d
    dimension_names = ("out_channels", "in_channels")

    def block_sparse(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> BlockSparseConv2d:
        """The block-sparse layer that holds the blocks of ``mask``."""
        return BlockSparseConv2d(dense, layout, mask)

    def why_unfit(self, module: Any) -> str:
        """Grouped convolutions stay dense."""
        return grouped_reason(module)

    def weight(self, module: Any) -> Tensor:
        """``[out, in, kh, kw]``."""
        return cast(Tensor, module.weight)

    def weight_matrix(self, module: Any) -> Tensor:
        """``[out, kh*kw*in]``, detached."""
        return conv_weight_to_matrix(self.weight(module).detach())

    def traced_input(self, module: Any, x: Tensor, output: Tensor) -> TracedInput:
        """``[batch, in, h, w]``, padded where the convolution itself does not pad."""
        images = x.unsqueeze(0) if x.dim() == 3 else x
        settings: Conv2dSettings = getattr(module, "settings", None) or Conv2dSettings.of(module)
        return TracedInput(settings.pad(images), settings.geometry, getattr(module, "groups", 1))

    def traced_gradient(self, gradient: Tensor) -> Tensor:
        """``[batch, out, oh, ow]``."""
        return gradient.unsqueeze(0) if gradient.dim() == 3 else gradient


def _has_channels_innermost(x: Tensor) -> bool:
    """Whether ``x [batch, channels, h, w]`` is in `torch.channels_last`, and in no other memory format as well."""
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
