"""A training step as data: the zero patterns and shapes of the operands of all three passes."""

from acf.trace.bits import BitTensor
from acf.trace.capture import capture
from acf.trace.op import PHASES, Matmul, TracedConv, TracedOp
from acf.trace.trace import Trace
from acf.trace.vector_op import VECTOR_KINDS, VectorOp, kept_by, windows_per_value

__all__ = [
    "PHASES",
    "VECTOR_KINDS",
    "BitTensor",
    "Matmul",
    "Trace",
    "TracedConv",
    "TracedOp",
    "VectorOp",
    "capture",
    "kept_by",
    "windows_per_value",
]
