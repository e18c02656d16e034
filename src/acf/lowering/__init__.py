"""From a training step to the fabric's packets: trace -> matrix products -> tiled product -> mapping -> program.

`acf.lowering.pipeline` names the stages; every stage is a frozen value that can be printed.
"""

from acf.lowering.balance import BALANCERS
from acf.lowering.fabric_shape import FabricShape
from acf.lowering.gemm import Gemm
from acf.lowering.packed_rows import PackedRows
from acf.lowering.pipeline import lower_gemm
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
