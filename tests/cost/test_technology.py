"""Technology nodes: published at 65 nm, scaled by sourced figures, refused where there are none."""

from dataclasses import replace

import numpy as np
import pytest

import acf.sim
from acf.cost import LOGIC_ENERGY, sram_leakage_mw, sram_mm2, sram_pj_per_byte


def half_zeros() -> acf.Trace:
    rng = np.random.default_rng(0)
    a, b = rng.random((64, 256)) < 0.5, np.ones((256, 64), dtype=bool)
    return acf.Trace.from_matmuls([acf.Matmul("fc", "forward", a, b)])


def test_smaller_nodes_take_less_energy_and_area_in_the_same_cycles() -> None:
    results = [acf.simulate(half_zeros(), acf.sim.spec("tensordash", technology_nm=node)) for node in (65, 45, 28)]
    assert len({result.cycles for result in results}) == 1
    for part in ("mac", "control", "sram"):
        joules = [result.energy_breakdown_j[part] for result in results]
        areas = [result.area_mm2[part] for result in results]
        assert sorted(joules, reverse=True) == joules
        assert sorted(areas, reverse=True) == areas
    assert len({result.energy_breakdown_j["dram"] for result in results}) == 1


def test_logic_scales_by_the_published_factors() -> None:
    at_65, at_28 = (acf.simulate(half_zeros(), acf.sim.spec("tensorcore", technology_nm=node)) for node in (65, 28))
    ratio = LOGIC_ENERGY[28].value / LOGIC_ENERGY[65].value
    assert at_28.energy_breakdown_j["mac"] / at_65.energy_breakdown_j["mac"] == pytest.approx(ratio)
    assert at_28.area_mm2["mac"] / at_65.area_mm2["mac"] == pytest.approx((28 / 65) ** 2)


@pytest.mark.parametrize("figure", [sram_pj_per_byte, sram_leakage_mw, sram_mm2])
def test_sram_between_two_nodes_lies_between_their_figures(figure: object) -> None:
    low, middle, high = sorted(figure(node, 65536) for node in (22, 28, 32))
    assert figure(28, 65536) == middle
    assert low < middle < high


@pytest.mark.parametrize("node", [7, 16, 90])
def test_a_node_without_figures_is_refused(node: int) -> None:
    with pytest.raises(acf.AcfError, match=f"technology_nm {node} is not one of 65, 45, 28"):
        acf.sim.spec("tensorcore", technology_nm=node)


def test_sat_and_gpus_say_how_large_they_are() -> None:
    assert acf.sim.spec("sat").area_mm2["mac"] == pytest.approx(1024 * 4196e-6, rel=1e-3)
    assert acf.sim.spec("sat").area_mm2["sram"] > 100
    assert 0 < acf.sim.spec("sat").leakage_w < 0.01
    assert acf.sim.spec("gpu-h200").area_mm2 == {"die": 814.0}


def test_zeros_off_chip_can_be_left_uncompressed() -> None:
    plain = acf.simulate(half_zeros(), replace(acf.sim.spec("tensorcore"), compresses_off_chip=False))
    assert plain.dram_bytes == 2 * (64 * 256 + 256 * 64)
    assert acf.simulate(half_zeros(), acf.sim.spec("tensorcore")).dram_bytes < 0.85 * plain.dram_bytes
