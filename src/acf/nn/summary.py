"""What `acf.sparsify_` did to each layer, and the weight sparsity of a model."""

from dataclasses import dataclass
from typing import Protocol

from torch import nn

from acf.gradients import GradientSparsity
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.kinds import dense_kind_of
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
    """One block-sparse layer: its name, stored blocks, all blocks, and weights when dense."""

    name: str
    present_blocks: int
    block_count: int
    weights: int

    @property
    def density(self) -> float:
        """Share of the weights that are stored."""
        return self.present_blocks / self.block_count

    def __str__(self) -> str:
        return f"{self.name}: {self.present_blocks} of {self.block_count} blocks ({1 - self.density:.1%} sparse)"


@dataclass(frozen=True)
class NMLayerSummary:
    """One N:M layer: its name, what was asked, and its weights, all of which are stored."""

    name: str
    spec: NMSparsity
    weights: int

    @property
    def density(self) -> float:
        """Share of the weights that the forward pass uses."""
        return 1.0 if self.spec.masks.forward_dim is None else self.spec.density

    def __str__(self) -> str:
        return f"{self.name}: {self.spec.n}:{self.spec.m} {self.spec.method} ({1 - self.density:.1%} sparse forward)"


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
    """The layers made sparse, and those left dense with the reason."""

    sparse: tuple[SparseLayerSummary, ...]
    left_dense: tuple[tuple[str, str], ...]

    @property
    def sparsity(self) -> float:
        """Share of the sparse layers' weights that the forward pass leaves out; of blocks, those not stored."""
        weights = sum(layer.weights for layer in self.sparse)
        used = sum(layer.weights * layer.density for layer in self.sparse)
        return 1.0 - used / weights

    def __str__(self) -> str:
        lines = [str(layer) for layer in self.sparse]
        return "\n".join([*lines, *(f"{name}: dense, {reason}" for name, reason in self.left_dense)])


def block_sparse_layers(model: nn.Module) -> dict[str, BlockSparseLayer]:
    """The block-sparse layers of ``model`` by name, each once."""
    return {name: module for name, module in model.named_modules() if isinstance(module, BlockSparseLayer)}


def summarize(name: str, layer: BlockSparseLayer) -> LayerSummary:
    """The summary of one sparse layer."""
    return LayerSummary(name, layer.present_blocks, layer.layout.block_count, layer.dense_weights)


def weight_sparsity(model: nn.Module) -> float:
    """Share of the weights of all linear and 2-D convolution layers that are not stored; 0 for a dense model.

    N:M layers store every weight.
    """
    stored = total = 0
    for module in model.modules():
        kind = dense_kind_of(module)
        if isinstance(module, SparseLayer):
            stored += module.weight.numel()
            total += module.dense_weights
        elif kind is not None:
            stored += kind.weight(module).numel()
            total += kind.weight(module).numel()
    return 1.0 - stored / total if total else 0.0
