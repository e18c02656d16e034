"""Formats of sparse matrices: block layout, packed blocks with BSR and block-CSC indices, relative CSC, N:M groups."""

from acf.sparse.layout import BlockLayout, conv_weight_to_matrix, frobenius_norms, matrix_to_conv_weight
from acf.sparse.nm import nm_mask
from acf.sparse.slots import check_slot_shards, distributed_like, fill_slots, is_sharded, whole, zero_slots
from acf.sparse.topology import BlockTopology
from acf.sparse.transposable import transposable_mask

__all__ = [
    "BlockLayout",
    "BlockTopology",
    "check_slot_shards",
    "conv_weight_to_matrix",
    "distributed_like",
    "fill_slots",
    "frobenius_norms",
    "is_sharded",
    "matrix_to_conv_weight",
    "nm_mask",
    "transposable_mask",
    "whole",
    "zero_slots",
]
