"""Control energy and area: the table against the synthesis it was read from."""

import json
from pathlib import Path
from typing import Any

import pytest

from acf.cost import MAC_65NM_PJ
from acf.cost.control import CONTROL_ENERGY, CONTROL_UNITS, SYNTHESIS_FIGURES, ControlUnit, charge_scale, gates_mm2

RECORD = json.loads((Path(__file__).parents[2] / "docs/results/energy-synthesis.json").read_text(encoding="utf-8"))
QUANTITIES = ("gate_equivalents", "clock_pins", "gated_flip_flops")
PRODUCT_BITS = 34  # the registers of a product belong to the MAC, whose published figure includes its own


def _sum(modules: dict[str, Any], *terms: tuple[float, str]) -> tuple[float, ...]:
    return tuple(sum(count * modules[name][quantity] for count, name in terms) for quantity in QUANTITIES)


def _assert_unit(name: str, expected: tuple[float, ...]) -> None:
    unit = CONTROL_UNITS[name]
    found = (unit.gate_equivalents, unit.clock_pins, unit.gated_flip_flops)
    assert found == pytest.approx(expected, rel=1e-3, abs=1.0)


def test_units_of_a_wide_fabric_are_those_that_were_synthesised() -> None:
    modules = RECORD["area"]["acf-512-wide"]["modules"]
    scu = (1, "datapath"), (1, "counters"), (1, "walker")
    gates, pins, gated = _sum(modules, *scu, (-4, "datapath_multiplier_0"), (-4, "datapath_adder_0"))
    _assert_unit("scu-serial", (gates, pins - 4 * PRODUCT_BITS, gated - 4 * PRODUCT_BITS))
    _assert_unit("port", _sum(modules, (1, "port")))
    _assert_unit("cluster", _sum(modules, (1, "cluster"), *((-8, name) for _, name in scu), (-2, "port")))
    _assert_unit("row controller", _sum(modules, (1, "row_controller")))
    _assert_unit("column controller", _sum(modules, (1, "column_controller")))
    _assert_unit("device", _sum(modules, (1, "acf_fabric"), (-1, "fabric")))


def test_a_routers_registers_are_its_share_of_the_lines() -> None:
    modules = RECORD["area"]["acf-512-wide"]["modules"]
    controllers = ((-4, "row_controller"), (-4, "column_controller"))
    lines = _sum(modules, (1, "fabric"), (-12, "cluster"), (-4, "first_cluster"), *controllers)
    unit = CONTROL_UNITS["router"]
    assert (unit.clock_pins, unit.gated_flip_flops) == pytest.approx((lines[1] / 16, lines[2] / 16), abs=1.0)
    assert unit.gate_equivalents == 0  # charged as mesh


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("index walker", "block-walker"),
        ("prefix sum", "prefix-sum"),
        ("route planner", "route-planner"),
        ("sorter", "sorter"),
    ],
)
def test_units_of_the_controllers_are_those_that_were_synthesised(name: str, unit: str) -> None:
    _assert_unit(name, _sum({unit: RECORD["units"][unit]}, (1, unit)))


def test_switching_is_that_of_the_recorded_run() -> None:
    run = RECORD["power"]["one SCU of acf-512"]
    other = {name: value - run["clocks"].get(name, 0.0) for name, value in run["modules"].items()}
    scu = other["datapath"] + other["counters"] + other["walker"]
    assert CONTROL_UNITS["scu"].switched == pytest.approx(scu, rel=0.01)


def test_a_gated_clock_costs_less_and_never_less_than_registers_without_an_enable() -> None:
    unit = ControlUnit(100.0, 50.0, 40.0, 0.25, 0.0, "made up")
    assert unit.clocked_pins == 20.0
    assert unit.clock_pj(gated=True) == pytest.approx(0.4 * unit.clock_pj(gated=False))


def test_scaling_is_by_node_and_supply() -> None:
    assert gates_mm2(1e6) == pytest.approx(24.0 * (65 / 180) ** 2)
    register = ControlUnit(0.0, 1.0, 0.0, 0.0, 0.0, "made up")
    at_180nm = SYNTHESIS_FIGURES["clock_pin_pf"].value * 1.8**2
    tree = 1 + SYNTHESIS_FIGURES["clock_tree_share"].value
    assert register.clock_pj(gated=False) == pytest.approx(at_180nm * tree * 65 / 180 * (1.2 / 1.8) ** 2)


def test_calibrated_control_stands_beside_the_published_mac() -> None:
    assert [charge_scale(choice) for choice in CONTROL_ENERGY] == [1.0, pytest.approx(MAC_65NM_PJ.value / 7.3), 0.0]
