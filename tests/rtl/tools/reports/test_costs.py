"""Costs as synthesised beside those that the simulator charges."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

import acf.sim
from acf.cost import MAC_65NM_PJ
from acf.rtl.tools.liberty import Liberty
from acf.rtl.tools.reports.area import AreaReport, ModuleArea
from acf.rtl.tools.reports.costs import compare_costs
from acf.rtl.tools.reports.power import PowerReport
from acf.rtl.tools.reports.tables import cost_table
from tests.rtl.tools.reports.components import LIBERTY


def test_costs_are_brought_to_the_node_of_the_simulators_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    def area(component: Any, name: str, liberty: Liberty) -> AreaReport:
        component._MustUse__used = True
        cluster = ModuleArea(instances=64, gate_equivalents=900.0, memory_bits=5)
        return AreaReport(name, 64_000.0, 5, 10.0, {"cluster": cluster}, {})

    def power(component: Any, name: str, inputs: object, cycles: int, liberty: Liberty) -> PowerReport:
        component._MustUse__used = True
        return PowerReport(name, cycles, 20.0, 0.0, {}, {}, {}, "pF")

    monkeypatch.setattr("acf.rtl.tools.reports.costs.measure_area", area)
    monkeypatch.setattr("acf.rtl.tools.reports.costs.measure_power", power)
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
