"""Linear layers of a mixture of experts: dense and block-sparse, all experts in one layer, and their kind."""

from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from acf.nn.autocast import cast_for_autocast
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.kind import LayerKind, TracedInput
from acf.nn.nm_layer import NMLayer
from acf.ops import block_experts, block_experts_gradient_norms, dense_experts
from acf.sparse import BlockLayout, frobenius_norms


class ExpertLinear(nn.Module):
    """One linear layer per expert: ``y[t] = x[t] @ weight[e].T + bias[e]`` for every token ``t`` of expert ``e``.

    ``weight`` is ``[experts, out, in]``, or ``[experts, in, out]`` where ``input_major`` is set; ``bias`` is
    ``[experts, out]`` or None. Experts are computed one after the other. `acf.sparsify_` makes a
    `BlockSparseExpertLinear` of it, which takes one launch for all.

    >>> layer = ExpertLinear(experts=4, in_features=8, out_features=6)
    >>> layer(torch.randn(5, 8), torch.tensor([0, 2, 2, 3, 5])).shape
    torch.Size([5, 6])
    """

    input_major: bool = False

    def __init__(self, experts: int, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__()
        bound = in_features**-0.5  # as torch.nn.Linear
        self.weight = nn.Parameter(torch.empty(experts, out_features, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(experts, out_features).uniform_(-bound, bound)) if bias else None

    @classmethod
    def of(cls, weight: nn.Parameter, bias: nn.Parameter | None = None, input_major: bool = False) -> "ExpertLinear":
        """A layer of existing parameters, not copies of them."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer.weight, layer.input_major = weight, input_major
        layer.register_parameter("bias", bias)
        return layer

    @property
    def experts(self) -> int:
        """Number of experts."""
        return self.weight.shape[0]

    @property
    def out_features(self) -> int:
        """Outputs of each expert."""
        return self.weight.shape[2 if self.input_major else 1]

    @property
    def in_features(self) -> int:
        """Inputs of each expert."""
        return self.weight.shape[1 if self.input_major else 2]

    def matrices(self) -> Tensor:
        """The weight as ``[experts, out, in]``."""
        return self.weight.transpose(1, 2) if self.input_major else self.weight

    def forward(self, x: Tensor, offsets: Tensor | None = None) -> Tensor:
        """``x [tokens, in]``, sorted by expert, to ``[tokens, out]``.

        ``offsets [experts + 1]`` has the first row of each expert, then the end of the last; rows past it give zeros.
        Without offsets every expert has the same number of rows, within one.
        """
        offsets = even_offsets(x, self.experts) if offsets is None else offsets
        (x,) = cast_for_autocast(x)
        y = dense_experts(x, self.matrices(), offsets)
        return y if self.bias is None else add_expert_bias(y, self.bias, offsets)

    def extra_repr(self) -> str:
        """Experts and shape, for ``print(model)``."""
        shape = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"experts={self.experts}, {shape}, bias={self.bias is not None}"


class BlockSparseExpertLinear(BlockSparseLayer):
    """An `ExpertLinear` where only the present blocks of the experts' weights exist; no block lies in two experts.

    ``weight`` is ``[nnz, block_height, block_width]`` of the stacked matrix ``[experts * out, in]``: block row
    ``e * (out / block_height) + r`` is row ``r`` of expert ``e``. Blocks of all experts compete with each other, so an
    expert may become denser than another. Each pass is one launch for all experts.
    """

    kind_name = "experts"

    def __init__(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> None:
        layer = cast(ExpertLinear, dense)
        super().__init__(layout, layer.matrices().flatten(0, 1), mask, layer.bias)
        self.experts, self.input_major = layout.stacked, layer.input_major
        self.in_features, self.out_features = layout.cols, layout.rows // layout.stacked

    def forward(self, x: Tensor, offsets: Tensor | None = None) -> Tensor:
        """``x [tokens, in]``, sorted by expert, to ``[tokens, out]``; as `ExpertLinear.forward`."""
        offsets = even_offsets(x, self.experts) if offsets is None else offsets
        (x,) = cast_for_autocast(x)
        y = block_experts(x, self.weight, self.topology, offsets, self.identity.token)
        return y if self.bias is None else add_expert_bias(y, self.bias, offsets)

    def gradient_norms(
        self, output_grad: Tensor, x: Tensor, rows: Tensor, cols: Tensor, offsets: Tensor | None = None
    ) -> Tensor:
        """Norms of the weight-gradient blocks at ``(rows, cols)``, float32; present or absent alike."""
        offsets = even_offsets(x, self.experts) if offsets is None else offsets
        return block_experts_gradient_norms(output_grad, x, rows, cols, offsets, self.block_shape)

    def input_squares(self, x: Tensor) -> Tensor:
        """Mean square of every feature of ``x [tokens, in]`` over the tokens of all experts, float32 ``[in]``."""
        return frobenius_norms(x, dim=(0,)).square() / max(1, x.shape[0])

    def to_dense(self) -> ExpertLinear:
        """An `ExpertLinear` that computes the same; absent blocks become zeros."""
        weight = self.forward_matrix().reshape(self.experts, -1, self.in_features)
        weight = weight.transpose(1, 2).contiguous() if self.input_major else weight
        parameter = nn.Parameter(weight, requires_grad=self.weight.requires_grad)
        return ExpertLinear.of(parameter, self.bias, self.input_major).train(self.training)

    def extra_repr(self) -> str:
        """Experts, shape, block and density, for ``print(model)``."""
        shape = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"experts={self.experts}, {shape}, {super().extra_repr()}"


class ExpertLinearKind(LayerKind):
    """`ExpertLinear`: the matrix is the experts' weights below each other, ``[experts * out, in]``."""

    dense_class = ExpertLinear
    nm: ClassVar[type[NMLayer] | None] = None
    dimension_names = ("out_features", "in_features")
    of_torch = False
    is_traced = False

    def block_sparse(self, dense: nn.Module, layout: BlockLayout, mask: Tensor) -> BlockSparseExpertLinear:
        """The block-sparse layer that holds the blocks of ``mask``."""
        return BlockSparseExpertLinear(dense, layout, mask)

    def stacked(self, module: Any) -> int:
        """Number of experts."""
        return cast(ExpertLinear, module).experts

    def weight(self, module: Any) -> Tensor:
        """``[experts * out, in]``."""
        return cast(ExpertLinear, module).matrices().flatten(0, 1)

    def weight_matrix(self, module: Any) -> Tensor:
        """``[experts * out, in]``, detached."""
        return self.weight(module).detach()

    def traced_input(self, module: Any, x: Tensor, output: Tensor) -> TracedInput:
        """Refused: a trace has products of one matrix."""
        raise NotImplementedError("the products of experts are not traced")

    def traced_gradient(self, gradient: Tensor) -> Tensor:
        """Refused, like the input."""
        raise NotImplementedError("the products of experts are not traced")


def even_offsets(x: Tensor, experts: int) -> Tensor:
    """Offsets that give every expert the same number of rows of ``x [tokens, in]``, within one."""
    bounds = torch.arange(experts + 1, device=x.device) * x.shape[0]
    return torch.div(bounds, experts, rounding_mode="floor").int()


def add_expert_bias(y: Tensor, bias: Tensor, offsets: Tensor) -> Tensor:
    """``y [tokens, out]``, sorted by expert, plus each expert's row of ``bias [experts, out]``."""
    rows = torch.arange(y.shape[0], dtype=offsets.dtype, device=y.device)
    experts = torch.searchsorted(offsets[1:].contiguous(), rows, right=True)
    of_none = nn.functional.pad(bias, (0, 0, 0, 1))  # for rows past the last offset
    return (y + of_none.index_select(0, experts)).to(y.dtype)
