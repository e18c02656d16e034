"""2-D convolutions without groups: the kind, and the block-sparse and N:M counterparts of `torch.nn.Conv2d`."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from acf.nn.autocast import cast_for_autocast
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.kind import LayerKind, TracedInput
from acf.nn.nm_layer import NMLayer
from acf.nn.nm_spec import NMSparsity
from acf.nn.sparse_layer import SparseLayer
from acf.ops import Conv2dGeometry, block_conv2d, block_conv2d_gradient_norms, conv2d_with_two_weights
from acf.sparse import BlockLayout, conv_weight_to_matrix, frobenius_norms, matrix_to_conv_weight


@dataclass(frozen=True)
class Conv2dSettings:
    """What a dense convolution says of itself, and what is computed of it.

    ``padding`` is as declared. ``explicit_padding`` is ``(left, right, top, bottom)`` where the input must be padded
    before the convolution, because it is not padded with zeros or not evenly, and empty elsewhere; ``geometry`` is
    that of the convolution after it.
    """

    channels: tuple[int, int]
    padding: str | tuple[int, int]
    padding_mode: Literal["zeros", "reflect", "replicate", "circular"]
    explicit_padding: tuple[int, ...]
    geometry: Conv2dGeometry

    @classmethod
    def of(cls, dense: nn.Conv2d) -> "Conv2dSettings":
        """The settings of a dense layer."""
        declared = cast(str | tuple[int, int], dense.padding)
        pads_itself = dense.padding_mode == "zeros" and not isinstance(declared, str)
        geometry = Conv2dGeometry(
            kernel_size=cast(tuple[int, int], dense.kernel_size),
            stride=cast(tuple[int, int], dense.stride),
            padding=cast(tuple[int, int], declared) if pads_itself else (0, 0),
            dilation=cast(tuple[int, int], dense.dilation),
        )
        explicit = () if pads_itself else tuple(dense._reversed_padding_repeated_twice)
        return cls((dense.in_channels, dense.out_channels), declared, dense.padding_mode, explicit, geometry)

    def pad(self, x: Tensor) -> Tensor:
        """``x [batch, in, h, w]`` with the padding that the convolution does not do itself."""
        if not self.explicit_padding:
            return x
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        return nn.functional.pad(x, self.explicit_padding, mode=mode)

    def dense_layer(self, layer: SparseLayer, weight: Tensor) -> nn.Conv2d:
        """A plain layer with ``weight [out, in, kh, kw]``, and bias and training mode of ``layer``."""
        dense = nn.Conv2d(
            *self.channels,
            self.geometry.kernel_size,
            stride=self.geometry.stride,
            padding=self.padding,
            dilation=self.geometry.dilation,
            bias=False,
            padding_mode=self.padding_mode,
            device="meta",
        )
        dense.weight = nn.Parameter(weight, requires_grad=layer.weight.requires_grad)
        dense.register_parameter("bias", layer.bias)
        return dense.train(layer.training)


class BlockSparseConv2d(BlockSparseLayer):
    """2-D convolution where only the present blocks of the ``[out, kh*kw*in]`` weight matrix exist.

    A block is ``block_height`` output channels by ``block_width`` input channels at one kernel tap.
    Made from a dense layer by `acf.sparsify_`; ``weight`` is ``[nnz, block_height, block_width]``.
    """

    kind_name = "conv2d"

    def __init__(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> None:
        matrix = conv_weight_to_matrix(cast(Tensor, dense.weight))
        super().__init__(layout, matrix, mask, cast(nn.Parameter | None, dense.bias))
        self.settings = Conv2dSettings.of(cast(nn.Conv2d, dense))
        self.in_channels, self.out_channels = self.settings.channels

    def forward(self, x: Tensor) -> Tensor:
        """``x [batch, in, h, w]`` to ``[batch, out, oh, ow]``; ``[in, h, w]`` to ``[out, oh, ow]``."""
        if x.dim() == 3:
            image: Tensor = self.forward(x.unsqueeze(0)).squeeze(0)
            return image
        (x,) = cast_for_autocast(self.settings.pad(x))
        geometry, token = self.settings.geometry, self.identity.token
        y = block_conv2d(x, self.weight, self.topology, geometry, self.bias, token)
        return self._probed(y, x, geometry)

    def gradient_norms(self, output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """Norms of the weight-gradient blocks at ``(rows, cols)``, float32; present or absent alike."""
        return block_conv2d_gradient_norms(output_grad, x, rows, cols, self.block_shape, self.settings.geometry)

    def input_squares(self, x: Tensor) -> Tensor:
        """Mean square of every channel of ``x [batch, in, h, w]``, once per kernel tap: float32 ``[kh*kw*in]``."""
        channels = frobenius_norms(x, dim=(0, 2, 3)).square() / max(1, x.numel() // x.shape[1])
        height, width = self.settings.geometry.kernel_size
        return channels.repeat(height * width)

    def to_dense(self) -> nn.Conv2d:
        """A plain `torch.nn.Conv2d` that computes the same; absent blocks become zeros."""
        weight = matrix_to_conv_weight(self.forward_matrix(), self.settings.geometry.kernel_size)
        return self.settings.dense_layer(self, weight)

    def extra_repr(self) -> str:
        """Shape, block and density, for ``print(model)``."""
        geometry = self.settings.geometry
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={geometry.kernel_size}, stride={geometry.stride}, "
            f"padding={self.settings.padding}, {super().extra_repr()}"
        )


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

    def to_dense(self) -> nn.Conv2d:
        """A plain `torch.nn.Conv2d` whose forward pass computes the same; masked weights become zeros."""
        return self.settings.dense_layer(self, self.forward_weight())


class Conv2dKind(LayerKind):
    """`torch.nn.Conv2d`: the weight becomes ``[out, kh*kw*in]`` (im2col), the input stays an image with a geometry."""

    dense_class = nn.Conv2d
    nm: ClassVar[type[NMLayer] | None] = NMConv2d
    dimension_names = ("out_channels", "in_channels")

    def block_sparse(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> BlockSparseConv2d:
        """The block-sparse layer that holds the blocks of ``mask``."""
        return BlockSparseConv2d(dense, layout, mask)

    def why_unfit(self, module: Any) -> str:
        """Grouped convolutions stay dense."""
        return f"a grouped convolution (groups={module.groups})" if module.groups != 1 else ""

    def weight(self, module: Any) -> Tensor:
        """``[out, in, kh, kw]``."""
        return cast(Tensor, module.weight)

    def weight_matrix(self, module: Any) -> Tensor:
        """``[out, kh*kw*in]``, detached."""
        return conv_weight_to_matrix(self.weight(module).detach())

    def traced_input(self, module: Any, x: Tensor) -> TracedInput:
        """``[batch, in, h, w]``, padded where the convolution itself does not pad."""
        images = x.unsqueeze(0) if x.dim() == 3 else x
        settings: Conv2dSettings = getattr(module, "settings", None) or Conv2dSettings.of(module)
        return TracedInput(settings.pad(images), settings.geometry, getattr(module, "groups", 1))

    def traced_gradient(self, gradient: Tensor) -> Tensor:
        """``[batch, out, oh, ow]``."""
        return gradient.unsqueeze(0) if gradient.dim() == 3 else gradient
