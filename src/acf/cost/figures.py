"""Published figures of energy and area. A `Figure` without unit and source is refused."""

from dataclasses import dataclass

from acf.errors import ArchitectureError, PluginError
from acf.plugins import COSTS, describe_plugin, load_plugin, plugin_names


@dataclass(frozen=True)
class Figure:
    """A number with its unit and where it was published."""

    value: float
    unit: str
    source: str

    def __post_init__(self) -> None:
        if not self.unit.strip() or not self.source.strip():
            raise ArchitectureError(f"figure {self.value} has unit {self.unit!r} and source {self.source!r}; give both")


_TABLE_IV = "TensorDash (Mahmoud et al., 2020), Table IV: 65 nm, 500 MHz, 256 tensor cores, FP16 with FP32 accumulation"

_SECTION_IV_C = "TensorDash (Mahmoud et al., 2020), section IV-C: 65 nm, CACTI"

FIGURES: dict[str, Figure] = {
    "tensorcore_compute_mw": Figure(23_748.0, "mW", _TABLE_IV + "; compute cores"),
    "tensorcore_transposers_mw": Figure(44.4, "mW", _TABLE_IV + "; transposers"),
    "tensordash_schedulers_mw": Figure(187.9, "mW", _TABLE_IV + "; schedulers and B-side multiplexers"),
    "tensordash_a_multiplexers_mw": Figure(283.8, "mW", _TABLE_IV + "; A-side multiplexers"),
    "tensordash_staging_buffers_mw": Figure(1_638.4, "mW", _TABLE_IV + "; staging buffers"),
    "tensorcore_compute_mm2": Figure(68.74, "mm2", _TABLE_IV + "; compute cores"),
    "tensorcore_transposers_mm2": Figure(0.37, "mm2", _TABLE_IV + "; transposers"),
    "tensordash_schedulers_mm2": Figure(1.37, "mm2", _TABLE_IV + "; schedulers and B-side multiplexers"),
    "tensordash_a_multiplexers_mm2": Figure(3.63, "mm2", _TABLE_IV + "; A-side multiplexers"),
    "tensordash_staging_buffers_mm2": Figure(4.91, "mm2", _TABLE_IV + "; staging buffers"),
    "on_chip_memory_mm2": Figure(58.6, "mm2", _SECTION_IV_C + "; each of AM, BM and CM, 64 banks of 128 KB"),
    "tensorcore_scratchpads_mm2": Figure(3.95, "mm2", _SECTION_IV_C + "; scratchpads of the baseline, 256 KB"),
    "tensordash_scratchpads_mm2": Figure(5.9, "mm2", _SECTION_IV_C + "; scratchpads of TensorDash, more banks"),
}
"""Power and area of the published designs, by component."""

PUBLISHED_CLOCK_HZ = 500e6
"""TensorDash, Table III."""

PUBLISHED_CORES = 256
"""TensorDash, Table III."""

PUBLISHED_MACS_PER_CORE = 64
"""TensorDash, Table III: 4 x 4 PEs of 4 MACs."""

PUBLISHED_ON_CHIP_BYTES = 3 * 64 * 128 * 1024
"""TensorDash, Table III: AM, BM and CM, 64 banks of 128 KB each."""


PUBLISHED_TRANSPOSERS = 128
"""Assumed for the published TensorDash chip, see `acf.sim.accelerators.tensorcore.TensorCore.transposers`."""


def published_pj_per_core_cycle(*names: str) -> float:
    """Published milliwatts of the whole 256-core chip as picojoules of one core in one cycle."""
    return sum(FIGURES[name].value for name in names) * 1e9 / PUBLISHED_CLOCK_HZ / PUBLISHED_CORES


MAC_65NM_PJ = Figure(
    published_pj_per_core_cycle("tensorcore_compute_mw") / PUBLISHED_MACS_PER_CORE,
    "pJ per MAC",
    _TABLE_IV + "; compute cores over their 64 MACs per cycle",
)
"""FP16 multiply, FP32 accumulate at 65 nm: 2.90 pJ."""

MAC_65NM_MM2 = Figure(
    FIGURES["tensorcore_compute_mm2"].value / (PUBLISHED_CORES * PUBLISHED_MACS_PER_CORE),
    "mm2 per MAC",
    _TABLE_IV + "; compute cores over their 64 MACs",
)
"""FP16 multiplier with FP32 accumulation at 65 nm: 4,196 um2."""

REGISTER_65NM_PJ_PER_BYTE = Figure(
    published_pj_per_core_cycle("tensordash_staging_buffers_mw") / 256,
    "pJ per byte",
    _TABLE_IV + "; staging buffers over the 256 bytes per cycle that feed the 64 MACs of a core",
)
"""A byte out of registers at 65 nm."""

DRAM_PJ_PER_BIT: dict[str, Figure] = {
    "ddr": Figure(20.0, "pJ/bit", "SparTANN, section 5.2.1: 160 pJ per byte of off-chip traffic"),
    "lpddr4": Figure(
        8.0, "pJ/bit", "assumption: LPDDR4 device and interface at high bandwidth, no published breakdown"
    ),
    "gddr5": Figure(14.0, "pJ/bit", "O'Connor et al., Fine-Grained DRAM, MICRO 2017: GDDR5 access energy"),
    "hbm2": Figure(3.9, "pJ/bit", "O'Connor et al., Fine-Grained DRAM, MICRO 2017: HBM2 access energy"),
}
"""Energy of one bit to or from DRAM, by kind of memory."""


def dram_figure(kind: str) -> Figure:
    """Energy of one bit to or from DRAM of ``kind``: a key of `DRAM_PJ_PER_BIT`, or an entry point of `acf.costs`."""
    if kind in DRAM_PJ_PER_BIT:
        return DRAM_PJ_PER_BIT[kind]
    if kind not in plugin_names(COSTS):
        known = ", ".join((*DRAM_PJ_PER_BIT, *plugin_names(COSTS)))
        raise ArchitectureError(f"dram_kind {kind!r} is not one of {known}; use one of these names")
    figure = load_plugin(COSTS, kind)
    if not isinstance(figure, Figure):
        raise PluginError(
            f"{describe_plugin(COSTS, kind)} loads a {type(figure).__name__}; let it load an acf.cost.Figure in pJ/bit"
        )
    return figure
