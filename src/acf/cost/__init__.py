"""Energy figures, each with its unit and source."""

from acf.cost.figures import (
    DRAM_PJ_PER_BIT,
    FIGURES,
    MAC_65NM_PJ,
    REGISTER_65NM_PJ_PER_BYTE,
    Figure,
    published_pj_per_core_cycle,
)
from acf.cost.sram import sram_pj_per_byte

__all__ = [
    "DRAM_PJ_PER_BIT",
    "FIGURES",
    "MAC_65NM_PJ",
    "REGISTER_65NM_PJ_PER_BYTE",
    "Figure",
    "published_pj_per_core_cycle",
    "sram_pj_per_byte",
]
