"""A real training step as data: the zero patterns and shapes of the operands of all three passes."""

from acf.trace.bits import BitTensor
from acf.trace.capture import capture
from acf.trace.gemm import Gemm
from acf.trace.lower import gemm_count, lower
from acf.trace.op import PHASES, ConvShape, Matmul, TracedOp
from acf.trace.packed import PackedRows
from acf.trace.trace import Trace

__all__ = [
    "PHASES",
    "BitTensor",
    "ConvShape",
    "Gemm",
    "Matmul",
    "PackedRows",
    "Trace",
    "TracedOp",
    "capture",
    "gemm_count",
    "lower",
]
