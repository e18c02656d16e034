"""What block-sparse and N:M layers of every kind have in common."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from acf.nn.fx_leaf import FxLeaf


class SparseLayer(FxLeaf, ABC):
    """Base of every layer that `acf.sparsify_` puts in the place of a dense one; ``weight`` is what is stored."""

    kind_name: ClassVar[str]
    """The layer kind, a key of `acf.nn.kinds.LAYER_KINDS`."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    @property
    @abstractmethod
    def dense_weights(self) -> int:
        """Number of weights of the dense layer."""

    @abstractmethod
    def to_dense(self) -> nn.Module:
        """The plain torch layer whose forward pass computes the same; weights that are left out become zeros."""

    @abstractmethod
    def weight_matrix(self) -> Tensor:
        """The dense weight matrix of the forward product, ``[out, in]`` or ``[out, kh*kw*in]``; differentiable.

        Of a transposed convolution it is ``[in, kh*kw*out]``, the matrix whose transpose is the forward product's.
        Read this, not ``weight``, where a matrix is expected.
        """

    @abstractmethod
    def forward_matrix(self) -> Tensor:
        """`weight_matrix`, detached."""

    def backward_matrix(self) -> Tensor | None:
        """That of the input gradient; None if it is the forward product's."""
        return None

    def gradient_mask(self) -> Tensor | None:
        """Bool, of the weight matrix's shape: weights whose gradient is computed; None for all of them."""
        return None
