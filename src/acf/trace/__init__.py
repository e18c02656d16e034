"""A training step as data: the zero patterns and shapes of the operands of all three passes."""

from acf.trace.bits import BitTensor
from acf.trace.capture import capture
from acf.trace.op import PHASES, Matmul, TracedConv, TracedOp
from acf.trace.trace import Trace

__all__ = [
    "PHASES",
    "BitTensor",
    "Matmul",
    "Trace",
    "TracedConv",
    "TracedOp",
    "capture",
]
