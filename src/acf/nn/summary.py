"""What `acf.sparsify_` did to each layer, and the weight sparsity of a model."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from acf.errors import require_kind
from acf.gradients import GradientSparsity
from acf.nn.attention import BlockSparseMultiheadAttention
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.fused_experts import form_of, why_fused
from acf.nn.nm_spec import NMSparsity
from acf.nn.sparse_layer import SparseLayer


class SparseLayerSummary(Protocol):
    """What every form of sparsity reports about a layer; ``str`` gives one line."""

    @property
    def name(self) -> str:
        """The layer's name in the model."""

    @property
    def weights(self) -> int:
        """Number of weights when dense."""

    @property
    def density(self) -> float:
        """Share of the weights that the forward pass uses."""


@dataclass(frozen=True)
class LayerSummary:
    """One block-sparse layer: its name, stored blocks, all blocks, weights when dense, and what they were scaled by."""

    name: str
    present_blocks: int
    block_count: int
    weights: int
    scale: float = 1.0

    @property
    def density(self) -> float:
        """Share of the weights that are stored."""
        return self.present_blocks / self.block_count

    def __str__(self) -> str:
        scaled = "" if self.scale == 1.0 else f", weights x {self.scale:.2f}"
        blocks = f"{self.present_blocks} of {self.block_count} blocks"
        return f"{self.name}: {blocks} ({1 - self.density:.1%} sparse{scaled})"


@dataclass(frozen=True)
class NMLayerSummary:
    """One N:M layer: its name, what was asked, its weights, all of which are stored, and how it multiplies.

    ``products`` says so for the device that the layer is on; a model moved later is described by `NMLayer.products`.
    """

    name: str
    spec: NMSparsity
    weights: int
    products: str = ""

    @property
    def density(self) -> float:
        """Share of the weights that the forward pass uses."""
        return 1.0 if self.spec.masks.forward_dim is None else self.spec.density

    def __str__(self) -> str:
        method = f"transposable {self.spec.method}" if self.spec.transposable else self.spec.method
        sparse = f"{self.name}: {self.spec.n}:{self.spec.m} {method} ({1 - self.density:.1%} sparse forward)"
        return f"{sparse}, {self.products}" if self.products else sparse


@dataclass(frozen=True)
class GradientLayerSummary:
    """One layer whose output gradient is sparsified: its name, what was asked, and its weights as stored."""

    name: str
    spec: GradientSparsity
    weights: int

    @property
    def density(self) -> float:
        """1: the forward pass uses every weight it did before."""
        return 1.0

    def __str__(self) -> str:
        return f"{self.name}: output gradient to {self.spec.target:.0%} zeros by {self.spec.method}"


@dataclass(frozen=True)
class SparsitySummary:
    """The layers made sparse, and every other parameter of two or more dimensions with the reason why it is dense.

    ``left_dense`` has a layer's name for a linear or convolution layer, and a parameter's name for all others (an
    embedding, an LSTM, fused experts). ``dense_weights`` is the number of weights in all of these.
    """

    sparse: tuple[SparseLayerSummary, ...]
    left_dense: tuple[tuple[str, str], ...]
    dense_weights: int = 0

    @property
    def sparsity(self) -> float:
        """Share of the sparse layers' weights that the forward pass leaves out; of blocks, those not stored."""
        weights = sum(layer.weights for layer in self.sparse)
        used = sum(layer.weights * layer.density for layer in self.sparse)
        return 1.0 - used / weights

    @property
    def model_sparsity(self) -> float:
        """The same share of all weights of two or more dimensions, those of dense layers included."""
        weights = sum(layer.weights for layer in self.sparse)
        return self.sparsity * weights / (weights + self.dense_weights)

    def __str__(self) -> str:
        lines = [str(layer) for layer in self.sparse]
        lines += [f"{name}: dense, {reason}" for name, reason in self.left_dense]
        weights = self.dense_weights + sum(layer.weights for layer in self.sparse)
        if self.dense_weights:
            share = self.dense_weights / weights
            lines.append(f"{self.dense_weights} of {weights} weights ({share:.1%}) are in dense layers")
        return "\n".join(lines)


def summary_of(
    model: nn.Module, sparse: Iterable[SparseLayerSummary], left_dense: Mapping[str, str]
) -> SparsitySummary:
    """The summary of ``model`` after layers became ``sparse``; ``left_dense`` holds the reasons known, by layer."""
    layers = tuple(sparse)
    of_listed = tuple(f"{name}." for name in [*left_dense, *(layer.name for layer in layers)])
    packed = {id(module.weight) for module in model.modules() if isinstance(module, SparseLayer)}
    weights = {name: each for name, each in named_weights(model).items() if id(each) not in packed}
    in_listed = {id(model.get_submodule(name)._parameters.get("weight")) for name in left_dense}
    others = {
        name: _why_dense(model.get_submodule(name.rpartition(".")[0]), parameter)
        for name, parameter in weights.items()
        if id(parameter) not in in_listed and not name.startswith(of_listed)
    }
    dense_weights = sum(parameter.numel() for parameter in weights.values())
    return SparsitySummary(layers, tuple({**left_dense, **others}.items()), dense_weights)


def named_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Every parameter of two or more dimensions by name, each once; the biases of sparse experts are no weights."""
    biases = {id(module.bias) for module in model.modules() if isinstance(module, SparseLayer)}
    parameters = model.named_parameters()
    return {name: parameter for name, parameter in parameters if parameter.dim() > 1 and id(parameter) not in biases}


_REASONS: dict[type[nn.Module], str] = {
    nn.Embedding: "an embedding is looked up, not multiplied",
    nn.EmbeddingBag: "an embedding is looked up, not multiplied",
    nn.RNNBase: "a recurrent layer hands its weights to a fused kernel as they are",
    nn.RNNCellBase: "a recurrent cell hands its weights to a fused kernel as they are",
    nn.MultiheadAttention: "attention multiplies its packed input projections itself",
    BlockSparseMultiheadAttention: "a key or value that attention adds to every sequence",
}
"""Why parameters of torch's own modules have no sparse form, by class."""


def _why_dense(module: nn.Module, parameter: Tensor) -> str:
    """Why a parameter that no layer kind knows stays dense."""
    known = (reason for kind, reason in _REASONS.items() if isinstance(module, kind))
    if form_of(module) is not None:
        return why_fused(module)
    shape = " x ".join(str(size) for size in parameter.shape)
    return next(known, f"{type(module).__name__} has no sparse form ({shape} weights)")


def block_sparse_layers(model: nn.Module) -> dict[str, BlockSparseLayer]:
    """The block-sparse layers of ``model`` by name, each once."""
    return {name: module for name, module in model.named_modules() if isinstance(module, BlockSparseLayer)}


def summarize(name: str, layer: BlockSparseLayer, scale: float = 1.0) -> LayerSummary:
    """The summary of one sparse layer, whose weights were multiplied by ``scale``."""
    return LayerSummary(name, layer.present_blocks, layer.layout.block_count, layer.dense_weights, scale)


def weight_sparsity(model: nn.Module, sparse_layers_only: bool = False) -> float:
    """Share of all weights of ``model`` that are not stored; 0 for a dense model.

    Weights are the elements of every parameter of two or more dimensions (linear and convolution layers, embeddings,
    recurrent layers, fused experts), each counted once, a sparse layer's as many as it has when dense; biases and the
    scales of normalisations are not. N:M layers store every weight. ``sparse_layers_only`` leaves out what
    `acf.sparsify_` left dense.
    """
    require_kind(model, nn.Module, "model", "pass a torch.nn.Module")
    sparse = {id(module.weight): module for module in model.modules() if isinstance(module, SparseLayer)}
    stored = sum(layer.weight.numel() for layer in sparse.values())
    total = sum(layer.dense_weights for layer in sparse.values())
    if not sparse_layers_only:
        dense = sum(parameter.numel() for parameter in named_weights(model).values() if id(parameter) not in sparse)
        stored, total = stored + dense, total + dense
    return 1.0 - stored / total if total else 0.0
