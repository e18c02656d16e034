"""The fabric as an accelerator: what it skips, what it waits for, what it charges."""

from dataclasses import replace

import numpy as np
import pytest

import acf.sim
from acf.errors import ArchitectureError
from acf.lowering import Gemm, effectual_macs, lower_gemm
from acf.lowering.packed_rows import PackedRows
from acf.lowering.tiles import TiledRows
from acf.sim.dram.spec import dram_spec
from acf.sim.dram.sustained import sustained_bandwidth
from acf.sim.fabric.runner import held_row_reads

PATIENT = 1e15  # bytes per second: memory never makes compute wait
SMALL = acf.sim.spec("acf-512", mesh_rows=2, mesh_columns=2, dram_pin_bytes_per_s=PATIENT)


def trace_of(a: np.ndarray, b: np.ndarray) -> acf.Trace:
    return acf.Trace.from_matmuls([acf.Matmul("fc", "forward", a, b)])


def test_absent_blocks_and_zero_activations_take_no_slots() -> None:
    a, b = np.ones((16, 32)), np.zeros((32, 16))
    b[:16] = 1.0
    full = acf.simulate(trace_of(a, b), SMALL).ops[0]
    assert full.effectual_macs == 16 * 16 * 16
    assert full.lost_slots["ineffectual"] == full.lost_slots["edge"] == 0
    a[:, ::2] = 0.0
    half = acf.simulate(trace_of(a, b), SMALL).ops[0]
    assert half.effectual_macs == 16 * 8 * 16
    assert half.lost_slots["ineffectual"] == 0


def test_gating_saves_energy_but_no_time() -> None:
    rng = np.random.default_rng(0)
    trace = trace_of(rng.random((512, 256)) < 0.5, np.ones((256, 128)))
    skips, gates = acf.simulate(trace, SMALL), acf.simulate(trace, replace(SMALL, skip="gate"))
    dense = acf.simulate(trace_of(np.ones((512, 256)), np.ones((256, 128))), replace(SMALL, skip="gate"))
    assert gates.cycles == pytest.approx(dense.cycles, rel=0.01)
    assert gates.energy_breakdown_j["mac"] == pytest.approx(skips.energy_breakdown_j["mac"])
    assert gates.energy_breakdown_j["mac"] == pytest.approx(dense.energy_breakdown_j["mac"] / 2, rel=0.05)
    assert skips.cycles < 0.6 * gates.cycles
    assert gates.ops[0].lost_slots["gated"] > 0


def test_no_work_is_done_for_gradients_nobody_needs() -> None:
    import torch
    from torch import nn

    def weight_gradient_cycles(sparsity: float) -> int:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(256, 256))
        acf.sparsify_(model, acf.BlockSparsity(sparsity, block=16))
        with acf.capture(model) as trace:
            model(torch.randn(1024, 256)).square().sum().backward()
        result = acf.simulate(trace, SMALL)
        return next(op.cycles for op in result.ops if op.phase == "weight_grad")

    assert weight_gradient_cycles(0.75) == pytest.approx(weight_gradient_cycles(0.0) / 4, rel=0.1)


def test_waiting_for_memory_is_named() -> None:
    trace = trace_of(np.ones((1024, 128)), np.ones((128, 128)))
    quick = acf.simulate(trace, acf.sim.spec("acf-512", dram_pin_bytes_per_s=PATIENT))
    starved = acf.simulate(trace, acf.sim.spec("acf-512", dram_pin_bytes_per_s=1e6))
    assert starved.cycles >= starved.dram_bytes * 250e6 / 1e6
    assert starved.stalls["memory"] > 0.9 * (starved.cycles - quick.cycles)


def test_blocks_at_ninety_percent_keep_more_than_eighty_percent_of_the_slots_busy() -> None:
    rng = np.random.default_rng(0)
    weights = np.kron(rng.random((32, 32)) < 0.1, np.ones((16, 16), dtype=bool))
    trace = trace_of(rng.random((2048, 512)) < 0.5, weights)
    assert acf.simulate(trace, "acf-512").utilization > 0.8


def test_a_crossbar_is_never_slower_than_the_mesh() -> None:
    rng = np.random.default_rng(0)
    weights = np.kron(rng.random((16, 16)) < 0.2, np.ones((16, 16), dtype=bool))
    trace = trace_of(rng.random((512, 256)) < 0.5, weights)
    mesh, crossbar = (acf.simulate(trace, replace(SMALL, interconnect=name)) for name in ("mesh", "crossbar"))
    assert crossbar.cycles <= mesh.cycles
    assert crossbar.stalls["mesh"] == 0


def test_balancing_anew_beats_a_mapping_that_does_not_know_the_blocks() -> None:
    weights = np.zeros((256, 256), dtype=bool)
    weights[:, :64] = True  # pruning left all blocks in the first columns of the output
    trace = trace_of(np.ones((256, 256)), weights)
    balanced, static = (acf.simulate(trace, replace(SMALL, interconnect=name)) for name in ("mesh", "static"))
    assert balanced.cycles < static.cycles


def test_small_products_of_a_batch_fill_the_fabric_together() -> None:
    bits = acf.trace.BitTensor.from_array(np.ones((64, 32, 32), dtype=bool))
    op = acf.trace.TracedOp("scores", "forward", "a", "b", batched=True, weighted=False)
    batch = acf.simulate(acf.Trace([op], {"a": bits, "b": bits}), "acf-512")
    alone = acf.simulate(trace_of(np.ones((32, 32)), np.ones((32, 32))), "acf-512")
    assert batch.ops[0].effectual_macs == batch.ops[0].dense_macs == 64 * 32**3
    assert batch.utilization > 3 * alone.utilization  # each has an index of its own, walked in both cases


def test_very_sparse_gradients_travel_shorter_by_columns_and_others_as_bits() -> None:
    rng = np.random.default_rng(0)
    for density, by_columns_is_shorter in ((0.05, True), (0.4, False)):
        gemm = Gemm(rng.random((256, 256)) < density, np.ones((256, 64), dtype=bool))
        flits = [int(lower_gemm(gemm, replace(SMALL, tile_format=name)).rows.flits.sum()) for name in ("bitmap", "csc")]
        assert (flits[1] < flits[0]) == by_columns_is_shorter


def test_a_new_routing_table_costs_energy_in_proportion_to_how_often_it_is_made() -> None:
    weight = np.kron(np.eye(4), np.ones((16, 16)))
    trace = trace_of(np.ones((64, 64)), weight)
    fabric = replace(SMALL, control_energy="none")
    often, seldom = (acf.simulate(trace, replace(fabric, topology_every_steps=steps)) for steps in (1, 100))
    assert often.energy_breakdown_j["control"] == pytest.approx(100 * seldom.energy_breakdown_j["control"])
    assert seldom.energy_breakdown_j["control"] > 0


def test_a_product_without_absent_blocks_has_no_routing_table_to_make_anew() -> None:
    trace = trace_of(np.ones((64, 64)), np.ones((64, 64)))
    assert acf.simulate(trace, replace(SMALL, control_energy="none")).energy_breakdown_j["control"] == 0
    assert acf.simulate(trace, SMALL).ops[0].other_cycles == 0


def test_the_large_fabric_has_the_peak_of_the_dense_baseline() -> None:
    assert acf.sim.spec("acf-16384").peak_flops == acf.sim.spec("tensorcore").peak_flops


@pytest.mark.parametrize(("machine", "memory", "channels"), [("acf-512", "ddr4-2400", 4), ("acf-16384", "hbm2", 2)])
def test_dram_gives_the_share_of_its_peak_that_the_dram_model_sustains(
    machine: str, memory: str, channels: int
) -> None:
    spec = dram_spec(memory, channels)
    share = acf.sim.spec(machine).dram_sustained_share
    assert sustained_bandwidth(spec, 512) / spec.peak_bytes_per_s == pytest.approx(share, rel=0.02)


@pytest.mark.parametrize("side", [(2, 4), (8, 8), (16, 16)])
def test_any_number_of_units_runs_the_same_program(side: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    trace = trace_of(rng.random((256, 128)) < 0.5, np.ones((128, 128)))
    spec = acf.sim.spec("acf-512", mesh_rows=side[0], mesh_columns=side[1])
    assert sum(op.effectual_macs for op in acf.simulate(trace, spec).ops) == effectual_macs(trace)


def test_control_and_clock_are_charged_unless_left_out() -> None:
    trace = trace_of(np.ones((64, 64)), np.ones((64, 64)))
    charged, calibrated, without = (
        acf.simulate(trace, replace(SMALL, control_energy=choice)) for choice in ("synthesised", "calibrated", "none")
    )
    assert "clock" not in without.energy_breakdown_j
    assert "control" not in without.area_mm2
    assert charged.cycles == without.cycles
    assert charged.energy_j > calibrated.energy_j > without.energy_j
    assert charged.area_mm2["control"] == calibrated.area_mm2["control"] > 0
    for component in ("mac", "sram"):
        assert charged.energy_breakdown_j[component] == without.energy_breakdown_j[component]


def test_clock_gating_saves_clock_energy_alone() -> None:
    trace = trace_of(np.ones((64, 64)), np.ones((64, 64)))
    plain, gated = (acf.simulate(trace, replace(SMALL, clock_gating=choice)) for choice in ("none", "enables"))
    assert gated.energy_breakdown_j["clock"] < 0.6 * plain.energy_breakdown_j["clock"]
    assert gated.energy_j - plain.energy_j == pytest.approx(
        gated.energy_breakdown_j["clock"] - plain.energy_breakdown_j["clock"]
    )


def test_sums_in_registers_and_rows_that_are_held_save_reads_of_memory() -> None:
    trace = trace_of(np.ones((64, 64)), np.ones((64, 64)))
    wide = acf.sim.spec("acf-512-wide")
    designs = (
        replace(wide, accumulate_in="banks", held_rows=1),  # type: ignore[call-arg]
        replace(wide, held_rows=1),  # type: ignore[call-arg]
        wide,
    )
    banks, registers, held = (acf.simulate(trace, each).energy_breakdown_j["sram"] for each in designs)
    assert banks > registers > held


def test_registers_of_sums_are_charged_with_control_or_with_the_mac_never_twice() -> None:
    trace = trace_of(np.ones((64, 64)), np.ones((64, 64)))
    wide = acf.sim.spec("acf-512-wide")
    charged = acf.simulate(trace, wide)
    without = acf.simulate(trace, replace(wide, control_energy="none"))  # type: ignore[call-arg]
    banks = acf.simulate(trace, replace(wide, accumulate_in="banks", held_rows=1))  # type: ignore[call-arg]
    assert without.energy_breakdown_j["mac"] > charged.energy_breakdown_j["mac"] == banks.energy_breakdown_j["mac"]
    assert charged.area_mm2["control"] > banks.area_mm2["control"]


def test_a_row_is_read_once_for_the_rows_that_are_held() -> None:
    rows = np.zeros((16, 16), dtype=bool)
    rows[0, :4], rows[8, 2:6] = True, True  # SCU 0 of 8 owns both: depths 0 to 5 have a non-zero in one of them
    serial = TiledRows.of(PackedRows.from_bool(rows), 16)
    assert held_row_reads(serial, scus=8, held_rows=1).tolist() == [[8]]
    assert held_row_reads(serial, scus=8, held_rows=2).tolist() == [[6]]
    assert held_row_reads(serial, scus=4, held_rows=2).tolist() == [[8]]  # rows 0 and 4, then 8 and 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accumulate_in": "banks"}, "needs sums in registers"),
        ({"held_rows": 3}, "does not divide the 8 rows"),
        ({"clock_gating": "some"}, "clock_gating 'some' is not one of none, enables"),
    ],
)
def test_designs_that_do_not_fit_together_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        acf.sim.spec("acf-512-wide", **changes)
