"""Formats of sparse matrices: block layout, packed blocks with BSR and block-CSC indices, relative CSC."""

from acf.sparse.layout import BlockLayout, conv_weight_to_matrix, frobenius_norms, matrix_to_conv_weight
from acf.sparse.slots import fill_slots, is_sharded, whole, zero_slots
from acf.sparse.topology import BlockTopology

__all__ = [
    "BlockLayout",
    "BlockTopology",
    "conv_weight_to_matrix",
    "fill_slots",
    "frobenius_norms",
    "is_sharded",
    "matrix_to_conv_weight",
    "whole",
    "zero_slots",
]
