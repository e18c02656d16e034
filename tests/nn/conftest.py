"""The oracle of the layer tests: a dense model with the absent blocks set to zero by hand."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from acf.nn import BlockSparseLayer
from acf.sparse import matrix_to_conv_weight


def _masked_dense(dense_model: nn.Module, sparse_model: nn.Module) -> nn.Module:
    """A copy of ``dense_model`` whose weights are zero in the blocks ``sparse_model`` does not have."""
    masked = copy.deepcopy(dense_model)
    for name, layer in sparse_model.named_modules():
        if isinstance(layer, BlockSparseLayer):
            height, width = layer.block_shape
            elements = layer.mask().repeat_interleave(height, 0).repeat_interleave(width, 1)
            weight = masked.get_submodule(name).weight
            if weight.dim() == 4:
                elements = matrix_to_conv_weight(elements, tuple(weight.shape[2:]))
            with torch.no_grad():
                weight.mul_(elements)
    return masked


@pytest.fixture
def masked_dense() -> Callable[[nn.Module, nn.Module], nn.Module]:
    return _masked_dense
