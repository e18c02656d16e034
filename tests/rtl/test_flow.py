"""The flow: Verilog that does not change, modules merged, a simulation that keeps its state."""

import re
import warnings

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out

from acf.errors import MissingDependencyError, RtlError
from acf.rtl import requirements, simulation
from acf.rtl.flow.lint import lint
from acf.rtl.flow.verilator import VerilatorUnavailableError, find_verilator
from acf.rtl.flow.verilog import emit_verilog, merge_identical_modules, to_rtlil
from acf.rtl.mac import MacUnit
from acf.rtl.registry import UNITS, module_name
from acf.rtl.simulation import Simulation, SlowSimulationWarning


class Counter(Component):
    """Counts up by ``by``."""

    def __init__(self) -> None:
        super().__init__({"by": In(8), "count": Out(8), "wide": Out(100)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.count.eq(self.count + self.by)
        m.d.comb += self.wide.eq(self.count << 70)
        return m


class Counters(Component):
    """Three counters, two of them in a row."""

    def __init__(self) -> None:
        super().__init__({"by": In(8), "count": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first, second, third = Counter(), Counter(), Counter()
        m.submodules.first, m.submodules.second, m.submodules.third = first, second, third
        m.d.comb += [first.by.eq(self.by), second.by.eq(self.by), third.by.eq(first.count ^ second.count)]
        m.d.comb += self.count.eq(third.count ^ second.count)
        return m


def test_the_same_component_is_the_same_text() -> None:
    assert emit_verilog(Counters(), "counters") == emit_verilog(Counters(), "counters")


def test_identical_modules_become_one() -> None:
    text = to_rtlil(Counters(), "counters")
    assert re.findall(r"^module (\S+)$", text, re.M) == [r"\counters_first", r"\counters"]
    assert merge_identical_modules(text) == text


class MacArray(Component):
    """MAC units side by side."""

    def __init__(self, units: int) -> None:
        self.units = units
        super().__init__({"a": In(16), "b": In(16 * units), "first": In(1), "sums": Out(32 * units)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for number in range(self.units):
            m.submodules[f"unit_{number}"] = unit = MacUnit()
            m.d.comb += [unit.a.eq(self.a), unit.b.eq(self.b.word_select(number, 16)), unit.valid.eq(1)]
            m.d.comb += [unit.first.eq(self.first), self.sums.word_select(number, 32).eq(unit.sum)]
        return m


@pytest.mark.parametrize("units", [1, 6])
def test_an_array_of_mac_units_is_four_modules_whatever_its_size(units: int) -> None:
    assert to_rtlil(MacArray(units), "array").count("\nmodule ") == 4


def test_a_merged_component_computes_what_an_unmerged_one_does(simulate) -> None:
    outputs = simulate(Counters()).run({"by": [1, 2, 3, 4, 5, 6]})
    counts, third, expected = 0, 0, []
    for by in (1, 2, 3, 4, 5, 6):
        expected.append(third ^ counts)
        counts, third = (counts + by) % 256, third
    assert outputs["count"].tolist() == expected


def test_state_is_kept_from_one_batch_to_the_next(simulate) -> None:
    running = simulate(Counter())
    assert running.run({"by": 3}, cycles=2)["count"].tolist() == [0, 3]
    assert running.run({"by": [1, 1]})["count"].tolist() == [6, 7]


def test_ports_wider_than_64_bits_are_words_least_first(simulate) -> None:
    outputs = simulate(Counter()).run({"by": 1}, cycles=3)
    assert outputs["wide"].tolist() == [[0, 0], [0, 1 << 6], [0, 2 << 6]]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"bye": [1]}, "'bye' is no input of this component; its inputs are by"),
        ({"by": [256]}, "port by has 8 bits and is given a value that needs more"),
        ({"by": [0.5]}, "port by is given float64 values; give integers"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, message: str) -> None:
    with pytest.raises(RtlError, match=message):
        Simulation(Counter(), backend="pysim").run(inputs)


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    counter = Counter()
    with pytest.raises(RtlError, match="'icarus' is not one of auto, verilator, pysim"):
        Simulation(counter, backend="icarus")
    Simulation(counter, backend="pysim")


def test_without_verilator_amaranth_simulates_after_one_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*arguments: object, **options: object) -> None:
        raise VerilatorUnavailableError("no Verilator in this test")

    monkeypatch.setattr(simulation, "load_model", unavailable)
    with pytest.warns(SlowSimulationWarning, match="no Verilator in this test"):
        running = Simulation(Counter())
    assert running.backend == "pysim"
    assert running.run({"by": [1, 1]})["count"].tolist() == [0, 1]
    with warnings.catch_warnings(action="error"):
        Simulation(Counter())


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"amaranth is not installed .* pip install 'acf\[rtl\]'"):
        requirements.require("amaranth")


@pytest.mark.parametrize("name", [name for name in UNITS if name != "mesh"])
def test_the_verilog_of_every_unit_is_lint_clean(name: str, verilator: None) -> None:
    assert lint(emit_verilog(UNITS[name].build(), module_name(name)), find_verilator()) == []


def test_lint_finds_what_is_wrong(verilator: None) -> None:
    found = lint("module top(input a, output b);\n  assign b = c;\nendmodule\n", find_verilator())
    assert any(each.kind in ("ERROR", "IMPLICIT") for each in found)


def test_a_compiled_model_is_taken_from_the_cache(verilator: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from acf.rtl.flow import verilator as build

    Simulation(Counter(), backend="verilator")
    monkeypatch.setattr(build, "_build", lambda *arguments: pytest.fail("built again"))
    assert np.all(Simulation(Counter(), backend="verilator").run({"by": 2}, cycles=2)["count"] == [0, 2])
