"""What `acf.sparsify_` did to each layer, and how sparse a model is."""

from dataclasses import dataclass

from torch import nn

from acf.nn.dense import is_dense_layer, weight_of
from acf.nn.layer import BlockSparseLayer


@dataclass(frozen=True)
class LayerSummary:
    """One sparse layer: its name, stored blocks, all blocks, and weights when dense."""

    name: str
    present_blocks: int
    block_count: int
    weights: int


@dataclass(frozen=True)
class SparsitySummary:
    """The layers made sparse, and those left dense with the reason."""

    sparse: tuple[LayerSummary, ...]
    left_dense: tuple[tuple[str, str], ...]

    @property
    def sparsity(self) -> float:
        """Share of the sparse layers' weights that are not stored."""
        weights = sum(layer.weights for layer in self.sparse)
        stored = sum(layer.weights * layer.present_blocks / layer.block_count for layer in self.sparse)
        return 1.0 - stored / weights

    def __str__(self) -> str:
        lines = [
            f"{layer.name}: {layer.present_blocks} of {layer.block_count} blocks "
            f"({1 - layer.present_blocks / layer.block_count:.1%} sparse)"
            for layer in self.sparse
        ]
        return "\n".join([*lines, *(f"{name}: dense, {reason}" for name, reason in self.left_dense)])


def block_sparse_layers(model: nn.Module) -> dict[str, BlockSparseLayer]:
    """The block-sparse layers of ``model`` by name, each once."""
    return {name: module for name, module in model.named_modules() if isinstance(module, BlockSparseLayer)}


def summarize(name: str, layer: BlockSparseLayer) -> LayerSummary:
    """The summary of one sparse layer."""
    layout = layer.layout
    return LayerSummary(name, layer.present_blocks, layout.block_count, layout.rows * layout.cols)


def weight_sparsity(model: nn.Module) -> float:
    """Share of the weights of all linear and 2-D convolution layers that are not stored; 0 for a dense model."""
    stored = total = 0
    for module in model.modules():
        if isinstance(module, BlockSparseLayer):
            stored += module.weight.numel()
            total += module.layout.rows * module.layout.cols
        elif is_dense_layer(module):
            stored += weight_of(module).numel()
            total += weight_of(module).numel()
    return 1.0 - stored / total if total else 0.0
