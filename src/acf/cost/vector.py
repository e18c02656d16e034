"""Energy and area of a lane of a vector unit: one fp32 multiply-add per cycle."""

from math import exp, log

from acf.cost.figures import MAC_65NM_MM2, Figure
from acf.cost.technology import LOGIC_ENERGY, logic_area_scale

FP32_MULTIPLY_ADD_45NM_PJ = Figure(
    4.6, "pJ", "Horowitz, ISSCC 2014, Figure 1.1.9: 45 nm, 0.9 V; fp32 multiplication 3.7 pJ, fp32 addition 0.9 pJ"
)
"""An fp32 multiplication and an addition at 45 nm."""

LANE_AREA_IN_MACS = Figure(2.0, "MACs", "assumption: a multiplier twice as wide as the FP16 one and its registers")
"""Area of a lane, in FP16 MACs with FP32 accumulation (`acf.cost.MAC_65NM_MM2`)."""


def vector_operation_pj(technology_nm: int) -> float:
    """Picojoules of one operation of a lane; between the nodes of `LOGIC_ENERGY` log-log, beyond them as at the ends.

    >>> round(vector_operation_pj(65), 2), round(vector_operation_pj(45), 2)
    (5.75, 4.6)
    """
    nodes = sorted(LOGIC_ENERGY)
    node = min(max(technology_nm, nodes[0]), nodes[-1])
    high = next(each for each in nodes if each >= node)
    low = max(each for each in nodes if each <= node)
    scale = LOGIC_ENERGY[low].value
    if high > low:
        share = log(node / low) / log(high / low)
        scale = exp(log(scale) + share * log(LOGIC_ENERGY[high].value / scale))
    return FP32_MULTIPLY_ADD_45NM_PJ.value * scale


def vector_lane_mm2(technology_nm: int) -> float:
    """Square millimetres of one lane."""
    return LANE_AREA_IN_MACS.value * MAC_65NM_MM2.value * logic_area_scale(technology_nm)
