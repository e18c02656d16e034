"""Switched capacitance of gates in simulation."""

import numpy as np
import pytest

from acf.errors import RtlError
from acf.rtl.design.primitives.fifo import BoundedFifo, CreditCounter
from acf.rtl.tools.liberty import Liberty
from acf.rtl.tools.reports.power import GateSimulation, measure_power, weigh_toggles
from acf.rtl.tools.simulation import Simulation
from tests.rtl.tools.reports.components import LIBERTY, EnabledRegister, Pair


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


def test_a_gated_clock_stops_where_nothing_is_loaded(verilator: None) -> None:
    generator = np.random.default_rng(0)
    enable = np.arange(64) < 16
    inputs = {"value": generator.integers(0, 256, 64), "enable": enable}
    gated, plain = (GateSimulation(EnabledRegister(), clock_gating=gating) for gating in (True, False))
    expected = Simulation(EnabledRegister(), backend="pysim").run(inputs)
    assert np.array_equal(gated.run(inputs)["held"], expected["held"])
    plain.run(inputs)
    found, before = (weigh_toggles(each, "register", None) for each in (gated, plain))
    assert before.clock_per_cycle == pytest.approx(2 * 8, rel=0.05)
    # a quarter of the cycles, and the clock gate itself in every cycle: an inverter, a latch and a gate
    assert found.clock_per_cycle == pytest.approx(2 * (8 / 4 + 3), rel=0.1)
    assert sum(found.clocks.values()) == found.clock_per_cycle


def test_a_library_without_a_latch_cannot_gate_clocks() -> None:
    with pytest.raises(RtlError, match="needs a latch"):
        GateSimulation(EnabledRegister(), Liberty.read(LIBERTY), clock_gating=True)
