"""The block-sparse counterpart of `torch.nn.Linear`."""

from torch import Tensor, nn

from acf.nn.autocast import cast_for_autocast
from acf.nn.layer import BlockSparseLayer
from acf.ops import block_gradient_norms, block_linear
from acf.sparse import BlockLayout, frobenius_norms


class BlockSparseLinear(BlockSparseLayer):
    """``y [..., out] = x [..., in] @ W.T + bias`` where only the present blocks of ``W [out, in]`` exist.

    Made from a dense layer by `acf.sparsify_`; ``weight`` is ``[nnz, block_height, block_width]``.
    """

    def __init__(self, dense: nn.Linear, layout: BlockLayout, mask: Tensor) -> None:
        super().__init__(layout, dense.weight, mask, dense.bias)
        self.in_features = dense.in_features
        self.out_features = dense.out_features

    def forward(self, x: Tensor) -> Tensor:
        """``x [..., in]`` to ``[..., out]``."""
        (x,) = cast_for_autocast(x)
        return block_linear(x, self.weight, self.topology, self.bias)

    def gradient_norms(self, output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """Norms of the weight-gradient blocks at ``(rows, cols)``, float32; present or absent alike."""
        return block_gradient_norms(output_grad, x, rows, cols, self.block_shape)

    def input_squares(self, x: Tensor) -> Tensor:
        """Mean square of every feature of ``x [..., in]``, float32 ``[in]``."""
        tokens = x.reshape(-1, x.shape[-1])
        return frobenius_norms(tokens, dim=(0,)).square() / max(1, tokens.shape[0])

    def to_dense(self) -> nn.Linear:
        """A plain `torch.nn.Linear` that computes the same; absent blocks become zeros."""
        dense = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        dense.weight = nn.Parameter(self.weight_matrix().detach(), requires_grad=self.weight.requires_grad)
        dense.register_parameter("bias", self.bias)
        return dense.train(self.training)

    def extra_repr(self) -> str:
        """Shape, block and density, for ``print(model)``."""
        return f"in_features={self.in_features}, out_features={self.out_features}, {super().extra_repr()}"
