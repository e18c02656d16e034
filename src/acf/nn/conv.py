"""The block-sparse counterpart of `torch.nn.Conv2d` (without groups)."""

from typing import cast

from torch import Tensor, nn

from acf.nn.autocast import cast_for_autocast
from acf.nn.layer import BlockSparseLayer
from acf.ops import Conv2dGeometry, block_conv2d, block_conv2d_gradient_norms
from acf.sparse import BlockLayout, conv_weight_to_matrix, frobenius_norms, matrix_to_conv_weight


class BlockSparseConv2d(BlockSparseLayer):
    """2-D convolution where only the present blocks of the ``[out, kh*kw*in]`` weight matrix exist.

    A block is ``block_height`` output channels by ``block_width`` input channels at one kernel tap.
    Made from a dense layer by `acf.sparsify_`; ``weight`` is ``[nnz, block_height, block_width]``.
    """

    def __init__(self, dense: nn.Conv2d, layout: BlockLayout, mask: Tensor) -> None:
        super().__init__(layout, conv_weight_to_matrix(dense.weight), mask, cast(nn.Parameter | None, dense.bias))
        self.in_channels = dense.in_channels
        self.out_channels = dense.out_channels
        self.padding_mode = dense.padding_mode
        self.declared_padding = cast(str | tuple[int, int], dense.padding)  # what the dense layer said, for to_dense
        self.explicit_padding = explicit_padding(dense)
        self.geometry = geometry_of(dense)

    def forward(self, x: Tensor) -> Tensor:
        """``x [batch, in, h, w]`` to ``[batch, out, oh, ow]``; ``[in, h, w]`` to ``[out, oh, ow]``."""
        if x.dim() == 3:
            y: Tensor = self.forward(x.unsqueeze(0)).squeeze(0)
            return y
        (x,) = cast_for_autocast(pad_explicitly(x, self.explicit_padding, self.padding_mode))
        return block_conv2d(x, self.weight, self.topology, self.geometry, self.bias)

    def gradient_norms(self, output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """Norms of the weight-gradient blocks at ``(rows, cols)``, float32; present or absent alike."""
        return block_conv2d_gradient_norms(output_grad, x, rows, cols, self.block_shape, self.geometry)

    def input_squares(self, x: Tensor) -> Tensor:
        """Mean square of every channel of ``x [batch, in, h, w]``, once per kernel tap: float32 ``[kh*kw*in]``."""
        channels = frobenius_norms(x, dim=(0, 2, 3)).square() / max(1, x.numel() // x.shape[1])
        return channels.repeat(self.geometry.kernel_size[0] * self.geometry.kernel_size[1])

    def to_dense(self) -> nn.Conv2d:
        """A plain `torch.nn.Conv2d` that computes the same; absent blocks become zeros."""
        dense = nn.Conv2d(
            self.in_channels,
            self.out_channels,
            self.geometry.kernel_size,
            stride=self.geometry.stride,
            padding=self.declared_padding,
            dilation=self.geometry.dilation,
            bias=False,
            padding_mode=self.padding_mode,
            device="meta",
        )
        matrix = self.weight_matrix().detach()
        dense.weight = nn.Parameter(
            matrix_to_conv_weight(matrix, self.geometry.kernel_size), requires_grad=self.weight.requires_grad
        )
        dense.register_parameter("bias", self.bias)
        return dense.train(self.training)

    def extra_repr(self) -> str:
        """Shape, block and density, for ``print(model)``."""
        geometry = self.geometry
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={geometry.kernel_size}, stride={geometry.stride}, "
            f"padding={self.declared_padding}, {super().extra_repr()}"
        )


def explicit_padding(dense: nn.Conv2d) -> tuple[int, ...]:
    """``(left, right, top, bottom)`` to pad before a convolution without padding; empty if it pads itself."""
    if dense.padding_mode == "zeros" and not isinstance(dense.padding, str):
        return ()
    return tuple(dense._reversed_padding_repeated_twice)


def geometry_of(dense: nn.Conv2d) -> Conv2dGeometry:
    """The geometry of a dense convolution after its explicit padding."""
    return Conv2dGeometry(
        kernel_size=cast(tuple[int, int], dense.kernel_size),
        stride=cast(tuple[int, int], dense.stride),
        padding=(0, 0) if explicit_padding(dense) else cast(tuple[int, int], dense.padding),
        dilation=cast(tuple[int, int], dense.dilation),
    )


def pad_explicitly(x: Tensor, padding: tuple[int, ...], padding_mode: str) -> Tensor:
    """``x [batch, in, h, w]`` with the padding that a convolution does not do itself (`explicit_padding`)."""
    if not padding:
        return x
    return nn.functional.pad(x, padding, mode="constant" if padding_mode == "zeros" else padding_mode)
