"""Block-sparse and N:M layers, and the two calls that put them into a model and take them out again."""

from acf.nn.attention import BlockSparseMultiheadAttention
from acf.nn.averaged_model import SlotAveragedModel
from acf.nn.batch_norm import FusedBatchNorm2d
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.block_spec import BlockSparsity
from acf.nn.conv1d import BlockSparseConv1d
from acf.nn.conv2d import BlockSparseConv2d, NMConv2d
from acf.nn.conv3d import BlockSparseConv3d
from acf.nn.conv_transpose2d import BlockSparseConvTranspose2d
from acf.nn.expert_linear import BlockSparseExpertLinear, ExpertLinear
from acf.nn.experts import Experts
from acf.nn.fuse_batch_norms import fuse_batch_norms_
from acf.nn.fuse_gated import fuse_gated_mlps_
from acf.nn.fuse_mlps import fuse_mlps_
from acf.nn.fused import FusedSequential
from acf.nn.fused_experts import FUSED_FORMS, FusedForm, UnfusedExperts
from acf.nn.gated import GatedMLP
from acf.nn.kind import LayerKind, TracedInput
from acf.nn.kinds import LAYER_KINDS, dense_kind_of, kind_of
from acf.nn.linear import BlockSparseLinear, NMLinear
from acf.nn.nm_layer import NMLayer
from acf.nn.nm_spec import NMSparsity
from acf.nn.restore import load_sparse
from acf.nn.saved import save_sparse
from acf.nn.sparse_layer import SparseLayer
from acf.nn.sparsify import densify_, sparsify_
from acf.nn.summary import (
    GradientLayerSummary,
    LayerSummary,
    NMLayerSummary,
    SparsitySummary,
    block_sparse_layers,
    weight_sparsity,
)
from acf.nn.timing import LayerTiming, faster_layers, time_layers
from acf.nn.transposed_linear import BlockSparseTransposedLinear

__all__ = [
    "FUSED_FORMS",
    "LAYER_KINDS",
    "BlockSparseConv1d",
    "BlockSparseConv2d",
    "BlockSparseConv3d",
    "BlockSparseConvTranspose2d",
    "BlockSparseExpertLinear",
    "BlockSparseLayer",
    "BlockSparseLinear",
    "BlockSparseMultiheadAttention",
    "BlockSparseTransposedLinear",
    "BlockSparsity",
    "ExpertLinear",
    "Experts",
    "FusedBatchNorm2d",
    "FusedForm",
    "FusedSequential",
    "GatedMLP",
    "GradientLayerSummary",
    "LayerKind",
    "LayerSummary",
    "LayerTiming",
    "NMConv2d",
    "NMLayer",
    "NMLayerSummary",
    "NMLinear",
    "NMSparsity",
    "SlotAveragedModel",
    "SparseLayer",
    "SparsitySummary",
    "TracedInput",
    "UnfusedExperts",
    "block_sparse_layers",
    "dense_kind_of",
    "densify_",
    "faster_layers",
    "fuse_batch_norms_",
    "fuse_gated_mlps_",
    "fuse_mlps_",
    "kind_of",
    "load_sparse",
    "save_sparse",
    "sparsify_",
    "time_layers",
    "weight_sparsity",
]
