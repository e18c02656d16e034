"""Block-sparse and N:M layers, and the two calls that put them into a model and take them out again."""

from acf.nn.conv import BlockSparseConv2d
from acf.nn.conv1d import BlockSparseConv1D
from acf.nn.fused import FusedSequential
from acf.nn.layer import BlockSparseLayer
from acf.nn.linear import BlockSparseLinear
from acf.nn.nm_layer import NMConv2d, NMLayer, NMLinear
from acf.nn.nm_spec import NMSparsity
from acf.nn.sparsify import densify_, sparsify_
from acf.nn.spec import BlockSparsity
from acf.nn.summary import (
    GradientLayerSummary,
    LayerSummary,
    NMLayerSummary,
    SparsitySummary,
    block_sparse_layers,
    weight_sparsity,
)
from acf.nn.timing import LayerTiming, faster_layers, time_layers

__all__ = [
    "BlockSparseConv1D",
    "BlockSparseConv2d",
    "BlockSparseLayer",
    "BlockSparseLinear",
    "BlockSparsity",
    "FusedSequential",
    "GradientLayerSummary",
    "LayerSummary",
    "LayerTiming",
    "NMConv2d",
    "NMLayer",
    "NMLayerSummary",
    "NMLinear",
    "NMSparsity",
    "SparsitySummary",
    "block_sparse_layers",
    "densify_",
    "faster_layers",
    "sparsify_",
    "time_layers",
    "weight_sparsity",
]
