"""Transposed 2-D convolutions without groups: the kind, and the block-sparse counterpart of `torch.nn.ConvTranspose2d`.

The layer computes the input gradient of a convolution from its outputs to its inputs, and its input gradient is that
convolution. Torch stores the weight as that convolution's, ``[in, out, kh, kw]``, and blocks are cut from it so.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, cast

from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn.autocast import cast_for_autocast
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.dense_conv import DenseConv, grouped_reason
from acf.nn.kind import LayerKind, TracedInput
from acf.ops import Conv2dGeometry, block_conv2d_gradient_norms, block_conv_transpose2d, transposed_output_size
from acf.sparse import BlockLayout, conv_weight_to_matrix, frobenius_norms, matrix_to_conv_weight


@dataclass(frozen=True)
class ConvTranspose2dSettings:
    """The dense layer that a layer was made from, and the geometry of the convolution whose transpose it is."""

    dense: DenseConv
    geometry: Conv2dGeometry
    output_padding: tuple[int, int]

    @classmethod
    def of(cls, dense: nn.ConvTranspose2d) -> "ConvTranspose2dSettings":
        """The settings of a dense layer."""
        kernel, stride, padding, dilation = (
            cast(tuple[int, int], each) for each in (dense.kernel_size, dense.stride, dense.padding, dense.dilation)
        )
        geometry = Conv2dGeometry(kernel, stride, padding, dilation)
        return cls(DenseConv.of(dense), geometry, cast(tuple[int, int], dense.output_padding))

    def padding_for(self, x: Tensor, output_size: list[int] | None) -> tuple[int, int]:
        """The output padding that gives ``[..., height, width]`` of ``output_size``; the layer's own for None."""
        if output_size is None:
            return self.output_padding
        smallest = transposed_output_size((x.shape[2], x.shape[3]), self.geometry, (0, 0))
        padding = output_size[-2] - smallest[0], output_size[-1] - smallest[1]
        if any(not 0 <= more < stride for more, stride in zip(padding, self.geometry.stride, strict=True)):
            raise SparsityError(
                f"output_size {list(output_size)} cannot be made of an input of {list(x.shape)}; ask for a height and "
                f"width from {list(smallest)} up, by less than the stride {list(self.geometry.stride)} each"
            )
        return padding

    def extend(self, x: Tensor, output_padding: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        """``x`` and an output padding less than the stride, for the same output.

        Torch allows more where the dilation is greater. A stride of output padding is a row of zeros after the input.
        """
        (rows, more_height), (cols, more_width) = map(divmod, output_padding, self.geometry.stride)
        return nn.functional.pad(x, (0, cols, 0, rows)) if rows or cols else x, (more_height, more_width)


class BlockSparseConvTranspose2d(BlockSparseLayer):
    """Transposed 2-D convolution where only the present blocks of the ``[in, kh*kw*out]`` weight matrix exist.

    A block is ``block_height`` input channels by ``block_width`` output channels at one kernel tap: the transpose of
    the (outputs, inputs) that `acf.BlockSparsity` asks for. Block rows, which a balanced topology fills alike, are
    input channels. Made from a dense layer by `acf.sparsify_`; ``weight`` is ``[nnz, block_height, block_width]``.
    """

    kind_name = "conv_transpose2d"

    def __init__(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> None:
        matrix = conv_weight_to_matrix(cast(Tensor, dense.weight))
        super().__init__(layout, matrix, mask, cast(nn.Parameter | None, dense.bias))
        self.settings = ConvTranspose2dSettings.of(cast(nn.ConvTranspose2d, dense))
        self.in_channels, self.out_channels = self.settings.dense.channels

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """``x [batch, in, h, w]`` to ``[batch, out, oh, ow]``; ``[in, h, w]`` to ``[out, oh, ow]``."""
        if x.dim() == 3:
            return self.forward(x.unsqueeze(0), output_size).squeeze(0)
        (x,) = cast_for_autocast(x)
        x, padding = self.settings.extend(x, self.settings.padding_for(x, output_size))
        geometry, token = self.settings.geometry, self.identity.token
        y = block_conv_transpose2d(x, self.weight, self.topology, geometry, padding, self.bias, token)
        return self._probed(y, x, geometry, transposed=True)

    def gradient_norms(self, output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """Norms of the weight-gradient blocks at ``(rows, cols)``, float32; present or absent alike."""
        return block_conv2d_gradient_norms(x, output_grad, rows, cols, self.block_shape, self.settings.geometry)

    @property
    def input_count(self) -> int:
        """The input channels: the rows of the weight matrix."""
        return self.layout.rows

    def input_squares(self, x: Tensor) -> Tensor:
        """Mean square of every channel of ``x [batch, in, h, w]``, float32 ``[in]``."""
        return frobenius_norms(x, dim=(0, 2, 3)).square() / max(1, x.numel() // x.shape[1])

    def input_weighted_norms(self, packed: Tensor, squares: Tensor) -> Tensor:
        """Norms of the blocks ``packed``, rows weighted by the root mean square of the input they meet."""
        rows = squares.sqrt().reshape(self.layout.grid_rows, -1)
        return frobenius_norms(frobenius_norms(packed, dim=(2,)).mul_(rows[self.block_rows.long()]), dim=(1,))

    def to_dense(self) -> nn.Module:
        """A plain `torch.nn.ConvTranspose2d` that computes the same; absent blocks become zeros."""
        weight = matrix_to_conv_weight(self.forward_matrix(), self.settings.geometry.kernel_size)
        return self.settings.dense.build(self, weight)

    def extra_repr(self) -> str:
        """Shape, block and density, for ``print(model)``."""
        return f"{self.settings.dense}, {super().extra_repr()}"


class ConvTranspose2dKind(LayerKind):
    """`torch.nn.ConvTranspose2d`: the weight becomes ``[in, kh*kw*out]``."""

    dense_class = nn.ConvTranspose2d
    nm = None
    dimension_names = ("out_channels", "in_channels")
    transposed = True

    def block_sparse(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> BlockSparseConvTranspose2d:
        """The block-sparse layer that holds the blocks of ``mask``."""
        return BlockSparseConvTranspose2d(dense, layout, mask)

    def why_unfit(self, module: Any) -> str:
        """Grouped convolutions stay dense."""
        return grouped_reason(module)

    def weight(self, module: Any) -> Tensor:
        """``[out, in, kh, kw]``, a view of the stored ``[in, out, kh, kw]``."""
        return cast(Tensor, module.weight).transpose(0, 1)

    def weight_matrix(self, module: Any) -> Tensor:
        """``[in, kh*kw*out]``, detached."""
        return conv_weight_to_matrix(cast(Tensor, module.weight).detach())

    def layout(self, module: Any, block_shape: tuple[int, int]) -> BlockLayout:
        """Blocks of the ``[in, kh*kw*out]`` matrix, the transpose of ``block_shape`` (outputs, inputs)."""
        inputs, outputs, *kernel = module.weight.shape
        return BlockLayout(inputs, outputs * prod(kernel), block_shape[1], block_shape[0])

    def block_shape(self, packed: Tensor) -> tuple[int, int]:
        """Outputs and inputs of one block of a packed weight, which is stored as (inputs, outputs)."""
        return packed.shape[2], packed.shape[1]

    def traced_input(self, module: Any, x: Tensor, output: Tensor) -> TracedInput:
        """``[batch, in, h, w]``, as the output gradient of the convolution from ``output`` to ``x``."""
        images = x.unsqueeze(0) if x.dim() == 3 else x
        settings: ConvTranspose2dSettings = getattr(module, "settings", None) or ConvTranspose2dSettings.of(module)
        size = output.shape[-2], output.shape[-1]
        rows, cols = settings.geometry.output_size(*size)
        extended = nn.functional.pad(images, (0, cols - x.shape[-1], 0, rows - x.shape[-2]))
        return TracedInput(extended, settings.geometry, getattr(module, "groups", 1), size)

    def traced_gradient(self, gradient: Tensor) -> Tensor:
        """``[batch, out, oh, ow]``."""
        return gradient.unsqueeze(0) if gradient.dim() == 3 else gradient
