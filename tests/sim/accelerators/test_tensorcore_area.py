"""Area, leakage and data types: the published sums, and scaling that is exact at the published point."""

from dataclasses import replace

import pytest

import acf
from acf.cost import DATA_TYPES, overhead_scales, sram_leakage_mw, sram_mm2
from acf.sim.accelerators.moves import WIDE_MOVES


def test_areas_add_up_to_the_published_chips() -> None:
    """TensorDash, Table IV and section IV-C: 69.11 and 79.02 mm2 of compute, 3 x 58.6 of memory, scratchpads."""
    assert acf.sim.spec("tensorcore").area_mm2 == pytest.approx({"mac": 69.11, "sram": 3 * 58.6 + 3.95})
    assert acf.sim.spec("tensordash").area_mm2 == pytest.approx({"mac": 69.11, "sram": 3 * 58.6 + 5.9, "control": 9.91})


def test_area_grows_with_cores_and_memory() -> None:
    half = acf.sim.spec("tensorcore", cores=128, on_chip_bytes=acf.sim.spec("tensorcore").on_chip_bytes // 2)
    assert half.area_mm2 == pytest.approx(
        {name: area / 2 for name, area in acf.sim.spec("tensorcore").area_mm2.items()}
    )


def test_wide_pes_pay_less_for_skipping() -> None:
    """Section IV-D: 10 % more compute area; a model that scales each part by its geometry says 12.6 %."""
    wide = acf.sim.spec("tensordash", cores=64, lanes=16, depth=3, moves=WIDE_MOVES)
    assert wide.macs_per_cycle == acf.sim.spec("tensordash").macs_per_cycle
    assert 0.09 < wide.area_mm2["control"] / wide.area_mm2["mac"] < 0.13


def test_two_sided_skipping_needs_more_of_everything_but_the_a_side() -> None:
    scales = overhead_scales(4, 4, 4, 8, sides=2)
    assert scales == {"schedulers": 4.0, "a_multiplexers": 1.0, "staging_buffers": 4.0}
    assert (
        acf.sim.spec("tensordash", sides=2).area_mm2["control"] > 2.5 * acf.sim.spec("tensordash").area_mm2["control"]
    )


def test_a_result_carries_the_area_and_survives_json() -> None:
    trace = acf.Trace.from_matmuls([acf.Matmul("fc", "forward", [[1.0] * 8], [[1.0]] * 8)])
    spec = acf.sim.spec("tensordash")
    result = acf.simulate(trace, "tensordash")
    assert result.area_mm2 == spec.area_mm2 | spec.vector_area_mm2
    assert acf.Result.from_dict(result.to_dict()).area_mm2 == result.area_mm2
    assert set(result.energy_breakdown_j) == {"mac", "control", "sram", "dram", "leakage"}


def test_leakage_grows_with_time_and_memory() -> None:
    spec = acf.sim.spec("tensorcore")
    larger = replace(spec, on_chip_bytes=2 * spec.on_chip_bytes)
    assert 0 < spec.leakage_w < larger.leakage_w < 2 * spec.leakage_w
    trace = acf.Trace.from_matmuls([acf.Matmul("fc", "forward", [[1.0] * 64] * 64, [[1.0] * 64] * 64)])
    result = acf.simulate(trace, "tensorcore")
    assert result.energy_breakdown_j["leakage"] == pytest.approx(result.seconds * spec.leakage_w)


def test_sram_leakage_and_area_are_the_table_at_its_points() -> None:
    assert sram_leakage_mw(65, 65536) == pytest.approx(0.0016523, rel=1e-3)
    assert sram_mm2(65, 1048576) == pytest.approx(8.25021)


@pytest.mark.parametrize("name", DATA_TYPES)
def test_wider_arithmetic_costs_more(name: str) -> None:
    data_type = DATA_TYPES[name]
    spec = acf.sim.spec("tensorcore", data_type=name, value_bytes=data_type.value_bytes)
    order = ["bf16", "fp16", "fp32"]
    assert sorted(DATA_TYPES, key=lambda key: DATA_TYPES[key].compute_mw.value) == order
    assert sorted(DATA_TYPES, key=lambda key: DATA_TYPES[key].compute_mm2.value) == order
    assert spec.area_mm2["mac"] == pytest.approx(data_type.compute_mm2.value + 0.37)
