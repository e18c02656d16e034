"""Power and area of the tensor cores' arithmetic by data type; all accumulate in FP32."""

from dataclasses import dataclass

from acf.cost.figures import FIGURES, Figure

_CONTROL_MW = sum(
    FIGURES[f"tensordash_{name}_mw"].value for name in ("schedulers", "a_multiplexers", "staging_buffers")
)
_CONTROL_MM2 = sum(
    FIGURES[f"tensordash_{name}_mm2"].value for name in ("schedulers", "a_multiplexers", "staging_buffers")
)
_BFLOAT16 = (
    "derived from TensorDash, section IV-D, bfloat16: the same scheduler and multiplexers are 10 % of the power and "
    "16 % of the area of the smaller cores"
)
_FP32 = "derived from Horowitz, ISSCC 2014, 45 nm: FP32 multiply and add over FP16 multiply and FP32 add"


@dataclass(frozen=True)
class DataType:
    """Compute cores of the published 256-core chip for one type of operand of ``value_bytes``."""

    compute_mw: Figure
    compute_mm2: Figure
    value_bytes: int


DATA_TYPES: dict[str, DataType] = {
    "fp16": DataType(FIGURES["tensorcore_compute_mw"], FIGURES["tensorcore_compute_mm2"], 2),
    "bf16": DataType(
        Figure(_CONTROL_MW / 0.10 - FIGURES["tensorcore_transposers_mw"].value, "mW", _BFLOAT16),
        Figure(_CONTROL_MM2 / 0.16 - FIGURES["tensorcore_transposers_mm2"].value, "mm2", _BFLOAT16),
        2,
    ),
    "fp32": DataType(
        # (3.7 + 0.9) / (1.1 + 0.9) pJ; (7700 + 4184) / (1640 + 4184) um2
        Figure(FIGURES["tensorcore_compute_mw"].value * 4.6 / 2.0, "mW", _FP32),
        Figure(FIGURES["tensorcore_compute_mm2"].value * 11_884 / 5_824, "mm2", _FP32),
        4,
    ),
}
"""The data types that tensor cores are modelled for."""
