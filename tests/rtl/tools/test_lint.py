"""Verilator's lint over every component."""

import pytest

from acf.rtl.design.mesh.planned_mesh import PlannedMesh
from acf.rtl.design.mesh.route_planner import PlannerSpec
from acf.rtl.design.registry import UNITS, module_name
from acf.rtl.tools.lint import lint
from acf.rtl.tools.verilator import find_verilator
from acf.rtl.tools.verilog import emit_verilog

BUILDS = {name: unit.build for name, unit in UNITS.items() if name != "mesh"}
BUILDS["planned-mesh"] = lambda: PlannedMesh(PlannerSpec(columns=2, rows=1))  # half the routers, the same modules


@pytest.mark.parametrize("name", BUILDS)
def test_the_verilog_of_every_unit_is_lint_clean(name: str, verilator: None) -> None:
    assert lint(emit_verilog(BUILDS[name](), module_name(name)), find_verilator()) == []


def test_lint_finds_what_is_wrong(verilator: None) -> None:
    found = lint("module top(input a, output b);\n  assign b = c;\nendmodule\n", find_verilator())
    assert any(each.kind in ("ERROR", "IMPLICIT") for each in found)
