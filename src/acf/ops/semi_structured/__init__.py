"""2:4 products on sparse tensor cores, through torch's own semi-structured sparsity (cuSPARSELt, CUTLASS).

`choice` decides which library computes a layer, `libraries` wraps the two, and `product` has the ops and the autograd
function. A layer that no library takes multiplies by masked dense weights (`acf.ops.two_weights`).
"""

from acf.ops.semi_structured.choice import Choice, Machine, choose, describe_layer, library_for
from acf.ops.semi_structured.product import (
    DENSE,
    INPUTS,
    OUTPUTS,
    TILES,
    Groups,
    Operands,
    Product,
    make_operands,
    semi_structured_linear,
)

__all__ = [
    "DENSE",
    "INPUTS",
    "OUTPUTS",
    "TILES",
    "Choice",
    "Groups",
    "Machine",
    "Operands",
    "Product",
    "choose",
    "describe_layer",
    "library_for",
    "make_operands",
    "semi_structured_linear",
]
