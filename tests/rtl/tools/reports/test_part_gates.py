"""Gates of a part of a design in simulation, the rest as RTL."""

import numpy as np
import pytest

from acf.errors import RtlError
from acf.rtl.tools.reports.part_gates import Parts, gates_of_parts
from acf.rtl.tools.reports.power import GateSimulation, weigh_toggles
from acf.rtl.tools.simulation import Simulation
from acf.rtl.tools.verilog import to_rtlil
from tests.rtl.tools.reports.components import Accumulator, OneAccumulator, Pair


def test_a_part_as_gates_switches_as_it_does_where_all_are_gates(verilator: None) -> None:
    inputs = {"value": np.random.default_rng(0).integers(0, 256, 64)}
    whole, part = GateSimulation(Pair()), GateSimulation(Pair(), parts=Parts("top", ["first"]))
    expected = Simulation(Pair(), backend="pysim").run(inputs)
    assert np.array_equal(whole.run(inputs)["held"], expected["held"])
    assert np.array_equal(part.run(inputs)["held"], expected["held"])
    all_of_it, alone = (weigh_toggles(each, "register", None, "top.first") for each in (whole, part))
    assert alone.switched_per_cycle == all_of_it.switched_per_cycle > 0


def test_modules_that_stay_rtl_within_a_part_are_not_counted() -> None:
    rtlil = to_rtlil(Accumulator(), "unit")
    top = "attribute \\top 1\nmodule \\top\n  cell \\unit \\one\n  end\nend\n"
    files = gates_of_parts(rtlil.replace("attribute \\top 1\n", "") + top, Parts("top", ["one"], rtl="adder"), False)
    assert "module unit_gates(" in files["gates.v"]
    assert "module unit_adder(" in files["gates.v"]
    assert "unit_adder_gates" not in files["gates.v"]


def test_a_part_is_weighed_without_its_modules_that_stay_rtl(verilator: None) -> None:
    inputs = {"value": np.random.default_rng(0).integers(0, 256, 64)}
    whole = GateSimulation(OneAccumulator())
    part = GateSimulation(OneAccumulator(), parts=Parts("top", ["one"], rtl="adder"))
    assert np.array_equal(whole.run(inputs)["held"], part.run(inputs)["held"])
    all_of_it, alone = (weigh_toggles(each, "unit", None, "top.one") for each in (whole, part))
    assert {"unit", "unit.adder"} == set(all_of_it.instances)
    assert alone.instances == {"unit": all_of_it.instances["unit"]}


def test_an_instance_that_is_not_there_is_refused() -> None:
    with pytest.raises(RtlError, match="top holds no instance 'third'; name one of first, second"):
        gates_of_parts(to_rtlil(Pair(), "top"), Parts("top", ["third"]), clock_gating=False)
