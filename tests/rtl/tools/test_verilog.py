"""Verilog that does not change from run to run, identical modules merged."""

import re

import numpy as np
import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib.memory import Memory
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


class TwoMemories(Component):
    """Two memories of zeros, of which one begins with a word of its own."""

    address: In(7)
    data: Out(16)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.plain = plain = Memory(shape=8, depth=100, init=[])
        m.submodules.other = other = Memory(shape=8, depth=100, init=[5])
        reads = [memory.read_port() for memory in (plain, other)]
        m.d.comb += [port.addr.eq(self.address) for port in reads]
        m.d.comb += self.data.eq(Cat(*(port.data for port in reads)))
        return m


def test_large_memories_of_zeros_are_zeroed_by_a_loop_and_others_word_by_word() -> None:
    text = emit_verilog(TwoMemories(), "top")
    assert text.count("integer zeroed_word;") == 1
    assert "for (zeroed_word = 0; zeroed_word < 100; zeroed_word = zeroed_word + 1)" in text
    assert text.count("= 8'h05;") == 1
    assert text.count("] = 8'h00;") == 1 + 99


def test_memories_that_a_loop_zeroes_hold_the_same_words(simulate) -> None:
    words = simulate(TwoMemories()).run({"address": np.array([0, 1, 99, 0])})["data"]
    assert words[1:].tolist() == [5 << 8, 0, 0]
