"""Control energy and area: the table against the synthesis it was read from."""

import json
from pathlib import Path
from typing import Any

import pytest

from acf.cost import MAC_65NM_PJ
from acf.cost.control import (
    CONTROL_ENERGY,
    CONTROL_UNITS,
    FULL_TILES,
    STALL_COUNTERS,
    SUMS_OF_MACS,
    SYNTHESIS_FIGURES,
    ControlUnit,
    charge_scale,
    gates_mm2,
)
from acf.rtl.device.walking import WalkerOption
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.control import index_controller_bytes, reached_clusters, topology_unit_bytes
from acf.sim.registry import spec_of_kind

RECORD = json.loads((Path(__file__).parents[2] / "docs/results/energy-synthesis.json").read_text(encoding="utf-8"))
QUANTITIES = ("gate_equivalents", "clock_pins", "gated_flip_flops")
SCU = (1, "datapath"), (1, "counters"), (1, "walker")
SCU_MODULES, PORT_MODULES = ("datapath", "walker", "block_rows", "row_sums"), ("port", "few_bits", "value_", "group_")
MAC_BITS = 16 * 34 * SUMS_OF_MACS
PRODUCT_BITS = 34  # the registers of a product belong to the MAC, whose published figure includes its own


def _sum(modules: dict[str, Any], *terms: tuple[float, str]) -> tuple[float, ...]:
    return tuple(sum(count * modules[name][quantity] for count, name in terms) for quantity in QUANTITIES)


def _assert_unit(name: str, expected: tuple[float, ...]) -> None:
    unit = CONTROL_UNITS[name]
    found = (unit.gate_equivalents, unit.clock_pins, unit.gated_flip_flops)
    assert found == pytest.approx(expected, rel=1e-3, abs=1.0)


def test_units_of_acf_512_are_those_that_were_synthesised() -> None:
    modules = RECORD["area"]["acf-512"]["modules"]
    gates, pins, gated = _sum(modules, *SCU, (-1, "datapath_multiplier_0"), (-1, "datapath_adder_0"))
    _assert_unit("scu", (gates, pins - PRODUCT_BITS, gated - PRODUCT_BITS))
    _assert_unit("port", _sum(modules, (1, "port")))
    _assert_unit("cluster", _sum(modules, (1, "cluster"), *((-8, name) for _, name in SCU), (-1, "port")))
    _assert_unit("row controller", _sum(modules, (1, "row_controller")))
    _assert_unit("column controller", _sum(modules, (1, "column_controller")))
    _assert_unit("device", tuple(all_ / 16 for all_ in _sum(modules, (1, "acf_fabric"), (-1, "fabric"))))


def test_a_routers_registers_are_its_share_of_the_lines() -> None:
    modules = RECORD["area"]["acf-512"]["modules"]
    controllers = ((-8, "row_controller"), (-8, "column_controller"))
    lines = _sum(modules, (1, "fabric"), (-56, "cluster"), (-8, "first_cluster"), *controllers)
    unit = CONTROL_UNITS["router"]
    assert (unit.clock_pins, unit.gated_flip_flops) == pytest.approx((lines[1] / 64, lines[2] / 64), abs=1.0)
    assert unit.gate_equivalents == 0  # charged as mesh


@pytest.mark.parametrize(("config", "lanes"), [("acf-512-lanes4", 4), ("acf-512-wide", 16)])
def test_an_scu_with_its_lanes_is_what_was_synthesised(config: str, lanes: int) -> None:
    modules = RECORD["area"][config]["modules"]
    arithmetic = ((-lanes, "datapath_multiplier_0"), (-lanes, "datapath_adder_0"))
    gates, pins, gated = _sum(modules, *SCU, *arithmetic)
    scu, lane = CONTROL_UNITS["scu-serial"], CONTROL_UNITS["lane-serial"]
    assert scu.gate_equivalents + lanes * lane.gate_equivalents == pytest.approx(gates, rel=0.01)
    assert scu.clock_pins + lanes * lane.clock_pins == pytest.approx(pins - lanes * PRODUCT_BITS, rel=0.01)
    found_gated = scu.gated_flip_flops + lanes * lane.gated_flip_flops
    assert 0.95 * (gated - lanes * PRODUCT_BITS) <= found_gated <= gated - lanes * PRODUCT_BITS + 1
    assert CONTROL_UNITS["port-serial"].clock_pins == pytest.approx(modules["port"]["clock_pins"], rel=0.02)
    assert CONTROL_UNITS["port-serial"].gate_equivalents == pytest.approx(modules["port"]["gate_equivalents"], rel=0.06)


def test_units_of_acf_512_wide_are_those_that_were_synthesised() -> None:
    held = RECORD["area"]["SCU of acf-512-wide"]["modules"]
    arithmetic = ((-16, "datapath_multiplier_0"), (-16, "datapath_adder_0"))
    gates, pins, gated = _sum(held, (1, "datapath"), (1, "walker"), *arithmetic)
    _assert_unit("wide scu", (gates, pins - MAC_BITS, gated - MAC_BITS))
    _assert_unit("wide port", _sum(held, (1, "port")))
    assert STALL_COUNTERS.clock_pins == held["counters"]["clock_pins"]
    around = RECORD["area"]["acf-512-wide"]["modules"]
    _assert_unit(
        "wide cluster", _sum(around, (1, "cluster"), (-2, "port"), *((-2 * count, name) for count, name in SCU))
    )
    _assert_unit("wide row controller", _sum(around, (1, "row_controller")))
    _assert_unit("wide column controller", _sum(around, (1, "column_controller")))
    _assert_unit("wide device", tuple(all_ / 8 for all_ in _sum(around, (1, "acf_fabric"), (-1, "fabric"))))
    controllers = ((-4, "row_controller"), (-4, "column_controller"))
    _, pins, gated = _sum(around, (1, "fabric"), (-12, "cluster"), (-4, "first_cluster"), *controllers)
    router = CONTROL_UNITS["wide router"]
    assert (router.clock_pins, router.gated_flip_flops) == pytest.approx((pins / 16, gated / 16), abs=1.0)


@pytest.mark.parametrize("zeros", ["0.0", "0.5"])
def test_an_scu_that_holds_a_block_and_its_port_switch_and_are_clocked_as_in_the_recorded_run(zeros: str) -> None:
    run = RECORD["power"]["SCU of acf-512-wide"]["zeros"][zeros]
    for unit, modules in (("wide scu", SCU_MODULES), ("wide port", PORT_MODULES)):
        own = [name for name in run["modules"] if name.startswith(modules)]
        clocked = sum(run["clocks"][name] for name in own) / 2
        switched = sum(run["modules"][name] for name in own) - 2 * clocked
        clocked -= MAC_BITS if unit == "wide scu" else 0
        charged = CONTROL_UNITS[unit].in_turn_with(FULL_TILES[unit], 1.0 if zeros == "0.0" else 0.0)
        assert charged.clocked_pins == pytest.approx(clocked, rel=0.01), unit
        assert charged.switched == pytest.approx(switched, rel=0.01), unit
    assert all(name.startswith(SCU_MODULES + PORT_MODULES) for name in run["modules"])


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("index controller", "index-controller of acf-512"),
        ("wide index controller", "index-controller of acf-512-wide"),
        ("16-row index controller", "index-controller of acf-16384-hbm3e, no sharing"),
        ("32-row index controller", "index-controller of acf-h200, no sharing"),
    ],
)
def test_index_controllers_are_those_that_were_synthesised(name: str, unit: str) -> None:
    _assert_unit(name, _sum({unit: RECORD["units"][unit]}, (1, unit)))


@pytest.mark.parametrize("config", ["acf-512", "acf-512-wide", "acf-16384-hbm3e"])
def test_a_topology_unit_of_a_mesh_with_its_link_is_what_was_synthesised(config: str) -> None:
    row, fabric = RECORD["units"][f"topology-unit of {config}"], spec_of_kind(AdaptiveFabric, config)
    assert (row["link_bytes"], row["mesh_columns"]) == (fabric.link_bytes, fabric.mesh_columns)
    unit = CONTROL_UNITS["topology unit"].plus(CONTROL_UNITS["topology link byte"].times(row["link_bytes"]))
    unit = unit.plus(CONTROL_UNITS["topology mesh column"].times(row["mesh_columns"]))
    found = (unit.gate_equivalents, unit.clock_pins, unit.gated_flip_flops)
    assert found == pytest.approx(_sum({config: row}, (1, config)), rel=1e-4)
    assert row["memory_bits"] == topology_unit_bytes(fabric) * 8


@pytest.mark.parametrize("unit", [name for name in RECORD["units"] if name.startswith("index-controller of ")])
def test_an_index_controller_has_the_memories_that_were_synthesised(unit: str) -> None:
    config = unit.removeprefix("index-controller of ").removesuffix(", no sharing")
    row, fabric = RECORD["units"][unit], spec_of_kind(AdaptiveFabric, config)
    assert (row["mesh_columns"], row["clusters"]) == (fabric.mesh_columns, reached_clusters(fabric))
    assert 8 * (index_controller_bytes(fabric) - 4 * WalkerOption().index_words) == row["memory_bits"]


def _switched(run: dict[str, Any], *names: str) -> float:
    return sum(run["modules"][name] - run["clocks"].get(name, 0.0) for name in names)


def test_switching_is_that_of_the_recorded_runs() -> None:
    one, four = (RECORD["power"][f"one SCU of {name}"] for name in ("acf-512", "acf-512-lanes4"))
    assert CONTROL_UNITS["scu"].switched == pytest.approx(_switched(one, "datapath", "counters", "walker"), rel=0.01)
    scu, lane = CONTROL_UNITS["scu-serial"], CONTROL_UNITS["lane-serial"]
    assert scu.switched + 4 * lane.switched == pytest.approx(
        _switched(four, "datapath", "counters", "walker"), rel=0.01
    )
    assert CONTROL_UNITS["cluster"].switched >= _switched(
        four, "first_cluster", "first_cluster_results", "first_cluster_sums"
    )
    assert CONTROL_UNITS["port"].switched >= _switched(four, "port", "few_bits_6", "few_bits_3", "few_bits_5")


def test_registers_of_an_scu_are_clocked_as_in_the_recorded_run() -> None:
    run = RECORD["power"]["one SCU of acf-512-lanes4"]["clocks"]
    clocked = (run["datapath"] + run["counters"] + run["walker"]) / 2
    row_buffer = 272  # a row and a value of 16 bits
    expected = clocked - 4 * PRODUCT_BITS - row_buffer * 3 / 4
    scu, lane = CONTROL_UNITS["scu-serial"], CONTROL_UNITS["lane-serial"]
    assert scu.clocked_pins + 4 * lane.clocked_pins == pytest.approx(expected, rel=0.06)


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
