"""The dense layers that can become block-sparse, and their weights as matrices."""

from typing import cast

from torch import Tensor, nn

from acf.sparse import conv_weight_to_matrix

DenseLayer = nn.Linear | nn.Conv2d


def is_conv1d(module: nn.Module) -> bool:
    """Whether this is the ``Conv1D`` of Hugging Face transformers: a linear layer with a weight ``[in, out]``.

    Known by name, so that transformers need not be installed.
    """
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__.split(".")[0] == "transformers"


def is_dense_layer(module: nn.Module) -> bool:
    """Whether the module is of a kind that `acf.sparsify_` looks at."""
    return isinstance(module, DenseLayer) or is_conv1d(module)


def weight_of(module: nn.Module) -> Tensor:
    """The weight as ``[out, in]`` or ``[out, in, kh, kw]``."""
    weight = cast(Tensor, module.weight)
    return weight.T if is_conv1d(module) else weight


def weight_matrix_of(module: nn.Module) -> Tensor:
    """The weight as the matrix that blocks are cut from: ``[out, in]`` or ``[out, kh*kw*in]``."""
    weight = weight_of(module).detach()
    return conv_weight_to_matrix(weight) if weight.dim() == 4 else weight
