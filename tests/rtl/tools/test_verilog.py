"""Verilog that does not change from run to run, identical modules merged."""

import re

import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.arithmetic.mac import MacUnit
from acf.rtl.tools.verilog import emit_verilog, merge_identical_modules, to_rtlil
from tests.rtl.tools.counters import Counters


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
