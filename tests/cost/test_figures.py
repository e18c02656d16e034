"""Cost figures: each with a unit and a source, and right where the publications can be checked."""

import numpy as np
import pytest

import acf.sim
from acf.cost import DRAM_PJ_PER_BIT, FIGURES, MAC_65NM_PJ, Figure, published_pj_per_core_cycle, sram_pj_per_byte
from acf.cost.dram import DRAM_FIGURES
from acf.cost.mesh import MESH_FIGURES, WIRE_65NM_PJ_PER_BIT_MM
from acf.cost.spartann import SPARTANN_FIGURES
from acf.errors import ArchitectureError

PUBLISHED = [FIGURES, DRAM_PJ_PER_BIT, SPARTANN_FIGURES, MESH_FIGURES, *DRAM_FIGURES.values()]


@pytest.mark.parametrize(
    "figure", [MAC_65NM_PJ, WIRE_65NM_PJ_PER_BIT_MM, *(figure for figures in PUBLISHED for figure in figures.values())]
)
def test_every_figure_has_a_unit_and_a_source(figure: Figure) -> None:
    assert figure.unit
    assert len(figure.source) > 10
    assert figure.value > 0


@pytest.mark.parametrize(("unit", "source"), [("", "a paper"), ("pJ", ""), ("pJ", "  ")])
def test_a_figure_without_unit_or_source_is_refused(unit: str, source: str) -> None:
    with pytest.raises(ArchitectureError, match="give both"):
        Figure(1.0, unit, source)


def test_a_mac_costs_what_table_iv_implies() -> None:
    assert pytest.approx(2.90, abs=0.005) == MAC_65NM_PJ.value


def test_the_components_of_table_iv_add_up_to_a_nine_percent_overhead() -> None:
    baseline = published_pj_per_core_cycle("tensorcore_compute_mw", "tensorcore_transposers_mw")
    dash = published_pj_per_core_cycle(*(name for name in FIGURES if name.endswith("_mw")))
    assert dash / baseline == pytest.approx(1.09, abs=0.005)


def test_sram_energy_is_the_table_at_its_points_and_between_in_between() -> None:
    assert sram_pj_per_byte(65, 65536) == pytest.approx(94.097 / 32)
    assert sram_pj_per_byte(22, 1048576, write=True) == pytest.approx(119.599 / 64)
    assert sram_pj_per_byte(65, 65536) < sram_pj_per_byte(65, 131072) < sram_pj_per_byte(65, 262144)


def test_sram_sizes_outside_the_table_are_charged_as_its_ends() -> None:
    assert sram_pj_per_byte(45, 100) == sram_pj_per_byte(45, 4096)
    assert sram_pj_per_byte(45, 2**30) == sram_pj_per_byte(45, 2**20)


def test_a_node_without_figures_is_refused() -> None:
    with pytest.raises(ArchitectureError, match="no SRAM figures for 7 nm; use one of 22, 32, 45, 65"):
        sram_pj_per_byte(7, 4096)


def test_a_new_kind_of_dram_is_one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = acf.Trace.from_matmuls([acf.Matmul("fc", "forward", np.ones((32, 32)), np.ones((32, 32)))])
    monkeypatch.setitem(DRAM_PJ_PER_BIT, "ddr6", Figure(10.0, "pJ/bit", "assumption: half of DDR"))
    ddr, ddr6 = (acf.simulate(trace, acf.sim.spec("sat", dram_kind=kind)) for kind in ("ddr", "ddr6"))
    assert ddr6.energy_breakdown_j["dram"] == pytest.approx(ddr.energy_breakdown_j["dram"] / 2)
