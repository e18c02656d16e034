"""From a trace to the fabric's work, in two stages: trace -> matrix products -> packets."""

from acf.lowering.balance import BALANCERS
from acf.lowering.fabric_shape import FabricShape
from acf.lowering.gemm import Gemm
from acf.lowering.packed_rows import PackedRows
from acf.lowering.packing import lower_gemm
from acf.lowering.products import dense_macs, effectual_macs, matrix_products
from acf.lowering.program import PARALLEL, SERIAL, Program, Stream

__all__ = [
    "BALANCERS",
    "PARALLEL",
    "SERIAL",
    "FabricShape",
    "Gemm",
    "PackedRows",
    "Program",
    "Stream",
    "dense_macs",
    "effectual_macs",
    "lower_gemm",
    "matrix_products",
]
