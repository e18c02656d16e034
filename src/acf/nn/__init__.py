"""Block-sparse layers, and the two calls that put them into a model and take them out again."""

from acf.nn.conv import BlockSparseConv2d
from acf.nn.conv1d import BlockSparseConv1D
from acf.nn.layer import BlockSparseLayer
from acf.nn.linear import BlockSparseLinear
from acf.nn.sparsify import densify_, sparsify_
from acf.nn.spec import BlockSparsity
from acf.nn.summary import LayerSummary, SparsitySummary, block_sparse_layers, weight_sparsity
from acf.nn.timing import LayerTiming, faster_layers, time_layers

__all__ = [
    "BlockSparseConv1D",
    "BlockSparseConv2d",
    "BlockSparseLayer",
    "BlockSparseLinear",
    "BlockSparsity",
    "LayerSummary",
    "LayerTiming",
    "SparsitySummary",
    "block_sparse_layers",
    "densify_",
    "faster_layers",
    "sparsify_",
    "time_layers",
    "weight_sparsity",
]
