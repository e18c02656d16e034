"""Energy and area figures, each with its unit and source."""

from acf.cost.data_types import DATA_TYPES, DataType
from acf.cost.figures import (
    DRAM_PJ_PER_BIT,
    FIGURES,
    MAC_65NM_MM2,
    MAC_65NM_PJ,
    REGISTER_65NM_PJ_PER_BYTE,
    Figure,
    dram_figure,
    published_pj_per_core_cycle,
)
from acf.cost.overheads import overhead_scales
from acf.cost.sram import sram_leakage_mw, sram_mm2, sram_pj_per_byte
from acf.cost.technology import LOGIC_ENERGY, logic_area_scale, logic_energy_scale

__all__ = [
    "DATA_TYPES",
    "DRAM_PJ_PER_BIT",
    "FIGURES",
    "LOGIC_ENERGY",
    "MAC_65NM_MM2",
    "MAC_65NM_PJ",
    "REGISTER_65NM_PJ_PER_BYTE",
    "DataType",
    "Figure",
    "dram_figure",
    "logic_area_scale",
    "logic_energy_scale",
    "overhead_scales",
    "published_pj_per_core_cycle",
    "sram_leakage_mw",
    "sram_mm2",
    "sram_pj_per_byte",
]
