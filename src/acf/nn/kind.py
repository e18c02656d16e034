"""What the package must know of a kind of layer; `acf.nn.kinds` lists the kinds, each in a file of its own."""

from abc import ABC, abstractmethod
from math import prod
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from acf.nn.block_layer import BlockSparseLayer
from acf.nn.nm_layer import NMLayer
from acf.ops import Conv2dGeometry
from acf.sparse import BlockLayout


class TracedInput(NamedTuple):
    """A layer's input as its product reads it: ``[tokens, in]``, or ``[batch, in, h, w]`` with a ``geometry``.

    ``values`` are padded where the convolution itself does not pad. A layer of a ``transposed`` kind is traced as the
    convolution whose input gradient it is; ``input_size`` is then the height and width of the layer's output.
    """

    values: Tensor
    geometry: Conv2dGeometry | None = None
    groups: int = 1
    input_size: tuple[int, int] | None = None


class LayerKind(ABC):
    """A kind of dense layer and its sparse forms; without state, so one instance serves all layers."""

    dense_class: ClassVar[type[nn.Module]]
    nm: ClassVar[type[NMLayer] | None]
    """The N:M form; None if there is none."""
    dimension_names: ClassVar[tuple[str, str]]
    """What a layer calls its numbers of outputs and inputs."""
    of_torch: ClassVar[bool] = True
    """Whether the dense layer is torch's own. Others are known to block sparsity alone."""
    transposed: ClassVar[bool] = False
    """Whether the forward product is the input gradient of a convolution, and its input gradient the convolution."""
    is_traced: ClassVar[bool] = True
    """Whether a sparse layer is one matrix product, as `acf.capture` records it."""

    def is_dense(self, module: nn.Module) -> bool:
        """Whether the module is a dense layer of this kind, or of a class derived from it."""
        return isinstance(module, self.dense_class)

    def is_plain(self, module: nn.Module) -> bool:
        """Whether the module is a dense layer of this very class, so that a sparse layer behaves the same."""
        return type(module) is self.dense_class

    def why_unfit(self, module: nn.Module) -> str:
        """Why this dense layer has no sparse form, or an empty string."""
        return ""

    def stacked(self, module: Any) -> int:
        """Number of matrices of one shape that lie below each other in the weight; 1 but for experts."""
        return 1

    def layout(self, module: Any, block_shape: tuple[int, int]) -> BlockLayout:
        """How the weight matrix is cut into blocks of ``block_shape`` (outputs, inputs), which divides it."""
        outputs, inputs, *kernel = self.weight(module).shape
        return BlockLayout(outputs, inputs * prod(kernel), *block_shape, self.stacked(module))

    def block_shape(self, packed: Tensor) -> tuple[int, int]:
        """Outputs and inputs of one block of a packed weight."""
        return packed.shape[1], packed.shape[2]

    @abstractmethod
    def block_sparse(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> BlockSparseLayer:
        """The block-sparse form of ``dense`` with the blocks of bool ``mask [grid_rows, grid_cols]``."""

    @abstractmethod
    def weight(self, module: Any) -> Tensor:
        """The weight of a dense layer with outputs and inputs first: ``[out, in]``, or ``[out, in, *kernel_size]``."""

    @abstractmethod
    def weight_matrix(self, module: Any) -> Tensor:
        """The weight as the matrix that blocks are cut from, such as ``[out, in]`` or ``[out, kh*kw*in]``, detached."""

    @abstractmethod
    def traced_input(self, module: Any, x: Tensor, output: Tensor) -> TracedInput:
        """The input ``x`` of a dense or sparse layer of this kind, which made ``output`` of it, as a trace keeps it."""

    @abstractmethod
    def traced_gradient(self, gradient: Tensor) -> Tensor:
        """The gradient of a layer's output, as a trace keeps it."""
