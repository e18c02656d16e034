"""What a clock gate for every unit saves, and what else makes `acf-512-lean`."""

from dataclasses import replace

import numpy as np
import pytest

import acf
from acf.bench.fabric.workloads import StepSpec, layer_traces
from acf.lowering import Gemm
from acf.lowering.tiled_product import tile_product
from acf.sim import simulate_parts
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.activity import Activity, full_tiles, program_activity
from acf.sim.fabric.control import control_j
from acf.sim.registry import spec_of_kind
from acf.trace import BitTensor, TracedOp

WIDE, LEAN = (spec_of_kind(AdaptiveFabric, name) for name in ("acf-512-wide", "acf-512-lean"))


def step(density: float = 1.0) -> acf.Trace:
    rng = np.random.default_rng(0)
    tensors = {
        "a": BitTensor.from_array(rng.random((256, 128)) < density),
        "b": BitTensor.from_array(np.ones((128, 64), bool)),
    }
    return acf.Trace([TracedOp("fc", "forward", "a", "b")], tensors)


@pytest.mark.parametrize("density", [1.0, 0.5])
def test_the_lean_fabric_takes_the_cycles_of_the_wide_one_and_less_energy_in_every_unit(density: float) -> None:
    wide, lean = (acf.simulate(step(density), fabric) for fabric in (WIDE, LEAN))
    assert lean.cycles == wide.cycles
    energy = lean.energy_breakdown_j, wide.energy_breakdown_j
    assert all(energy[0][each] < energy[1][each] for each in ("sram", "control", "clock"))
    assert lean.energy_breakdown_j["mac"] == wide.energy_breakdown_j["mac"]


@pytest.mark.parametrize(
    "change",
    [
        {"clock_gating": "enables"},
        {"stall_counters": "all"},
        {"local_bank_bytes": 1 << 20},
    ],
    ids=str,
)
def test_every_part_of_the_lean_design_saves_energy(change: dict[str, str | int]) -> None:
    without = replace(LEAN, **change)  # type: ignore[arg-type]
    assert acf.simulate(step(), LEAN).energy_j < acf.simulate(step(), without).energy_j


def test_a_unit_without_work_costs_its_clock_gate_alone() -> None:
    idle = control_j(LEAN, Activity(cycles=1000))
    always = control_j(replace(LEAN, clock_gating="enables"), Activity(cycles=1000))
    assert idle["control"] == 0.0
    assert 0 < idle["clock"] < 0.01 * always["clock"]


# The share of full tiles of a product decides how acf-512-wide is clocked also in cycles without work, which are in
# no sum; single products are charged exactly, and the others have clock gates or no such share.
@pytest.mark.parametrize(("name", "tolerance"), [("acf-512", 1e-12), ("acf-512-wide", 1e-2), ("acf-512-lean", 1e-12)])
def test_counters_of_a_step_are_all_that_control_and_clock_are_charged_for(name: str, tolerance: float) -> None:
    fabric = spec_of_kind(AdaptiveFabric, name)
    result = simulate_parts(layer_traces(StepSpec("transformer-base", 64, 0.9), ("encoder.0.self",)), fabric)
    energy_j, charged_j = result.energy_breakdown_j, control_j(fabric, Activity.of_counters(result.counters))
    assert energy_j["clock"] == pytest.approx(charged_j["clock"], rel=tolerance)
    updates_j = energy_j["control"] - charged_j["control"]  # of the topology, which change with no figure of control
    assert 0 < updates_j < 0.1 * energy_j["control"]


def test_full_tiles_have_no_zero_and_all_their_rows() -> None:
    rows = np.ones((24, 32), dtype=bool)
    rows[3, 20] = False
    product = tile_product(Gemm(rows, np.ones((32, 16), dtype=bool)), WIDE, swapped=False)
    assert full_tiles(product).tolist() == [[256, 0], [0, 0]]


def test_flits_are_counted_where_they_pass() -> None:
    gemm = Gemm(np.ones((64, 16), dtype=bool), np.ones((16, 64), dtype=bool))
    lowered = WIDE.lowered(gemm)
    counts = program_activity(WIDE, lowered.program)
    assert counts["tile_pairs"] == 4 * 4
    assert counts["received_flits"] >= counts["row_flits"] + counts["column_flits"]
    assert counts["flit_hops"] >= counts["received_flits"]
    assert counts["result_flits"] * WIDE.link_bytes == 64 * 64 * 2


def test_banks_of_a_memory_take_more_area_than_one() -> None:
    one = replace(LEAN, local_bank_bytes=1 << 20)
    assert LEAN.area_mm2["sram"] > one.area_mm2["sram"]
