"""The block-sparse counterpart of the ``Conv1D`` of Hugging Face transformers, which GPT-2 is built of."""

from typing import cast

import torch
from torch import Tensor, nn

from acf.nn.layer import BlockSparseLayer
from acf.nn.linear import BlockSparseLinear
from acf.sparse import BlockLayout


class BlockSparseConv1D(BlockSparseLinear):
    """A `BlockSparseLinear` made from a layer that stores its weight as ``[in, out]``, and gives it back so.

    ``weight`` is ``[nnz, block_height, block_width]`` of the ``[out, in]`` matrix, as everywhere.
    """

    def __init__(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> None:
        BlockSparseLayer.__init__(
            self, layout, cast(Tensor, dense.weight).T, mask, cast(nn.Parameter | None, dense.bias)
        )
        self.in_features, self.out_features = layout.cols, layout.rows
        self.dense_class = type(dense)

    def to_dense(self) -> nn.Module:  # type: ignore[override]
        """The layer it was made from, with the weights it has now; absent blocks become zeros."""
        with torch.device("meta"):
            dense = self.dense_class(self.out_features, self.in_features)
        matrix = self.weight_matrix().detach().T.contiguous()
        dense.weight = nn.Parameter(matrix, requires_grad=self.weight.requires_grad)
        dense.register_parameter("bias", self.bias)
        return dense.train(self.training)
