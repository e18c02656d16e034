"""Linear layers: the kind, and the block-sparse and N:M counterparts of `torch.nn.Linear`."""

from typing import Any, ClassVar, cast

from torch import Tensor, nn

from acf.nn.autocast import cast_for_autocast
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.kind import LayerKind, TracedInput
from acf.nn.nm_compressed import CompressedWeight
from acf.nn.nm_layer import NMLayer
from acf.nn.nm_spec import NMSparsity
from acf.nn.sparse_layer import SparseLayer
from acf.ops import block_gradient_norms, block_linear, linear_with_two_weights
from acf.sparse import BlockLayout, frobenius_norms


class BlockSparseLinear(BlockSparseLayer):
    """``y [..., out] = x [..., in] @ W.T + bias`` where only the present blocks of ``W [out, in]`` exist.

    Made from a dense layer by `acf.sparsify_`; ``weight`` is ``[nnz, block_height, block_width]``.
    """

    kind_name = "linear"

    def __init__(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> None:
        matrix, bias = cast(Tensor, dense.weight), cast(nn.Parameter | None, dense.bias)
        super().__init__(layout, matrix, mask, bias)
        self.in_features, self.out_features = layout.cols, layout.rows

    def forward(self, x: Tensor) -> Tensor:
        """``x [..., in]`` to ``[..., out]``."""
        (x,) = cast_for_autocast(x)
        y = block_linear(x, self.weight, self.topology, self.bias, self.identity.token)
        return self._probed(y, x)

    def gradient_norms(self, output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """Norms of the weight-gradient blocks at ``(rows, cols)``, float32; present or absent alike."""
        return block_gradient_norms(output_grad, x, rows, cols, self.block_shape)

    def input_squares(self, x: Tensor) -> Tensor:
        """Mean square of every feature of ``x [..., in]``, float32 ``[in]``."""
        tokens = x.reshape(-1, x.shape[-1])
        return frobenius_norms(tokens, dim=(0,)).square() / max(1, tokens.shape[0])

    def to_dense(self) -> nn.Module:
        """A plain `torch.nn.Linear` that computes the same; absent blocks become zeros."""
        return _dense_linear(self, self.forward_matrix())

    def extra_repr(self) -> str:
        """Shape, block and density, for ``print(model)``."""
        return f"in_features={self.in_features}, out_features={self.out_features}, {super().extra_repr()}"


class NMLinear(NMLayer):
    """``y [..., out] = x [..., in] @ W.T + bias`` with N:M-masked ``W``; ``weight [out, in]`` stays dense."""

    kind_name = "linear"

    def __init__(self, dense: nn.Module, spec: NMSparsity) -> None:
        self.compressed = CompressedWeight(spec)  # first: the base class resets it when it generates the masks
        super().__init__(dense, spec)
        self.out_features, self.in_features = self.weight.shape

    def forward(self, x: Tensor) -> Tensor:
        """``x [..., in]`` to ``[..., out]``."""
        library = self.compressed.library_for(x, self.weight)
        if library:
            (x,) = cast_for_autocast(x)
            y = self.compressed.multiply(x, self.weight, library)
            return y if self.bias is None else y + self.bias.to(y.dtype)
        weight, backward_weight = self._product_weights()
        if backward_weight is None:
            return nn.functional.linear(x, weight, self.bias)
        x, weight, backward_weight = cast_for_autocast(x, weight, backward_weight)
        y = linear_with_two_weights(x, weight, backward_weight)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def products(self) -> str:
        """How the layer multiplies where it is now, in one phrase."""
        return self.compressed.describe(self.weight)

    def _weight_replaced(self) -> None:
        super()._weight_replaced()
        self.compressed.forget()

    def to_dense(self) -> nn.Linear:
        """A plain `torch.nn.Linear` whose forward pass computes the same; masked weights become zeros."""
        return _dense_linear(self, self.forward_weight())


class LinearKind(LayerKind):
    """`torch.nn.Linear`: the weight is the matrix, and the input a row of features per token."""

    dense_class = nn.Linear
    nm: ClassVar[type[NMLayer] | None] = NMLinear
    dimension_names = ("out_features", "in_features")

    def block_sparse(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> BlockSparseLinear:
        """The block-sparse layer that holds the blocks of ``mask``."""
        return BlockSparseLinear(dense, layout, mask)

    def weight(self, module: Any) -> Tensor:
        """``[out, in]``."""
        return cast(Tensor, module.weight)

    def weight_matrix(self, module: Any) -> Tensor:
        """``[out, in]``, detached."""
        return self.weight(module).detach()

    def traced_input(self, module: Any, x: Tensor, output: Tensor) -> TracedInput:
        """``[tokens, in]``."""
        return TracedInput(x.reshape(-1, x.shape[-1]))

    def traced_gradient(self, gradient: Tensor) -> Tensor:
        """``[tokens, out]``."""
        return gradient.reshape(-1, gradient.shape[-1])


def _dense_linear(layer: SparseLayer, weight: Tensor) -> nn.Linear:
    """A plain layer with ``weight [out, in]``, and bias, training mode and ``requires_grad`` of ``layer``."""
    outputs, inputs = weight.shape
    dense = nn.Linear(inputs, outputs, bias=False, device="meta")
    dense.weight = nn.Parameter(weight, requires_grad=layer.weight.requires_grad)
    dense.register_parameter("bias", layer.bias)
    return dense.train(layer.training)
