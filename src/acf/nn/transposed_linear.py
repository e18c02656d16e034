"""Linear layers that store ``[in, out]``: the ``Conv1D`` of Hugging Face transformers, which GPT-2 is built of.

It shares its name, and nothing else, with `torch.nn.Conv1d`.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from acf.nn.block_layer import BlockSparseLayer
from acf.nn.initial import fill_normal
from acf.nn.linear import BlockSparseLinear, LinearKind
from acf.sparse import BlockLayout


class BlockSparseTransposedLinear(BlockSparseLinear):
    """A `BlockSparseLinear` made from a layer that stores its weight as ``[in, out]``, and gives it back so.

    ``weight`` is ``[nnz, block_height, block_width]`` of the ``[out, in]`` matrix, as everywhere.
    """

    kind_name = "transposed_linear"

    def __init__(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> None:
        matrix, bias = cast(Tensor, dense.weight).T, cast(nn.Parameter | None, dense.bias)
        BlockSparseLayer.__init__(self, layout, matrix, mask, bias)
        self.in_features, self.out_features = layout.cols, layout.rows
        self.dense_class = type(dense)

    def _draw_weights(self, generator: torch.Generator) -> None:
        """As ``Conv1D`` does: normal with a deviation of 0.02, and no bias."""
        fill_normal(self.weight, 0.02, generator)
        if self.bias is not None:
            self.bias.zero_()

    def to_dense(self) -> nn.Module:
        """The layer it was made from, with the weights it has now; absent blocks become zeros."""
        with torch.device("meta"):
            dense = self.dense_class(self.out_features, self.in_features)
        matrix = self.forward_matrix().T.contiguous()
        dense.weight = nn.Parameter(matrix, requires_grad=self.weight.requires_grad)
        dense.register_parameter("bias", self.bias)
        return dense.train(self.training)


class TransposedLinearKind(LinearKind):
    """``transformers.pytorch_utils.Conv1D``, known by name, so that transformers need not be installed."""

    nm = None
    of_torch = False

    def block_sparse(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> BlockSparseTransposedLinear:
        """The block-sparse layer that holds the blocks of ``mask``."""
        return BlockSparseTransposedLinear(dense, layout, mask)

    def is_dense(self, module: nn.Module) -> bool:
        """Whether the module's class is called ``Conv1D`` and comes from transformers."""
        kind = type(module)
        return kind.__name__ == "Conv1D" and kind.__module__.split(".")[0] == "transformers"

    def is_plain(self, module: nn.Module) -> bool:
        """The same: a derived class has another name."""
        return self.is_dense(module)

    def weight(self, module: Any) -> Tensor:
        """``[out, in]``, a view of the stored ``[in, out]``."""
        return cast(Tensor, module.weight).T
