"""Transposers, on-chip banks and scratchpad banks: hidden as published, named stalls where there are too few."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import acf
from acf.lowering import Gemm, PackedRows
from acf.sim.accelerators import TensorCore
from acf.sim.accelerators.moves import PAPER_MOVES
from acf.sim.accelerators.scheduler import tile_cycles
from acf.sim.accelerators.supply import Supply
from acf.trace import PHASES, BitTensor, TracedConv, TracedOp

PATIENT = 1e15  # bytes per second: DRAM never makes compute wait
WAITS = {"on_chip_banks", "transposers", "scratchpad_banks"}


def conv_trace(phase: str, zeros: float = 0.5) -> acf.Trace:
    rng = np.random.default_rng(0)
    shapes = {"activation": (4, 64, 16, 16), "weight": (64, 9 * 64), "gradient": (4, 64, 16, 16)}
    shares = {"activation": zeros, "weight": 0.0, "gradient": zeros}
    tensors = {name: BitTensor.from_array(rng.random(shape) >= shares[name]) for name, shape in shapes.items()}
    operands = {"forward": ("activation", "weight"), "input_grad": ("gradient", "weight")}
    conv = TracedConv((3, 3), padding=(1, 1), input_size=(16, 16))
    op = TracedOp("conv", phase, *operands.get(phase, ("gradient", "activation")), conv=conv)
    return acf.Trace([op], tensors)


def lost(trace: acf.Trace, spec: TensorCore) -> dict[str, float]:
    return {reason: cycles for reason, cycles in acf.simulate(trace, spec).stalls.items() if reason in WAITS}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("zeros", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    "spec",
    [acf.sim.spec("tensorcore"), acf.sim.spec("tensordash"), acf.sim.spec("tensordash", sides=2)],
    ids=["dense", "dash", "two-sided"],
)
def test_the_published_machine_never_waits_for_its_on_chip_memory(phase: str, zeros: float, spec: TensorCore) -> None:
    assert lost(conv_trace(phase, zeros), spec) == {}


@pytest.mark.parametrize(("phase", "operands"), [("forward", 0), ("input_grad", 1), ("weight_grad", 2)])
def test_transposers_work_for_operands_that_are_not_reduced_along_channels(phase: str, operands: int) -> None:
    few = acf.sim.spec("tensordash", dram_pin_bytes_per_s=PATIENT, transposers=1)
    enough = replace(few, transposers=0)
    trace = conv_trace(phase)
    waited = lost(trace, few).get("transposers", 0.0)
    assert acf.simulate(trace, few).cycles == acf.simulate(trace, enough).cycles + waited
    assert (waited > 0) == (operands > 0)
    if operands:
        m, k, n = {"input_grad": (1024, 576, 64), "weight_grad": (64, 1024, 576)}[phase]
        blocks = {"left": m * (n // 4) * k // 4 // 16, "right": n * (m // 4) * k // 4 // 16}
        turned = blocks["right"] + (blocks["left"] if operands == 2 else 0)
        assert acf.simulate(trace, few).cycles == turned / 4  # one transposer turns four blocks a cycle


def test_a_skipping_machine_needs_more_transposers_than_a_dense_one() -> None:
    trace = conv_trace("weight_grad", 0.9)
    dense_rate = {"transposers": acf.sim.spec("tensorcore").transposer_count // 4, "dram_pin_bytes_per_s": PATIENT}
    assert lost(trace, acf.sim.spec("tensorcore", **dense_rate)) == {}
    assert lost(trace, acf.sim.spec("tensordash", **dense_rate))["transposers"] > 0
    assert acf.simulate(trace, acf.sim.spec("tensordash", **dense_rate)).cycles == pytest.approx(
        acf.simulate(trace, acf.sim.spec("tensorcore", **dense_rate)).cycles, rel=0.1
    )


def test_narrow_on_chip_banks_slow_both_machines() -> None:
    trace = conv_trace("forward", 0.9)
    narrow = {"bank_blocks_per_cycle": 1, "dram_pin_bytes_per_s": PATIENT}
    few = narrow | {"on_chip_bytes": 3 * 16 * 128 * 1024}
    assert lost(trace, acf.sim.spec("tensorcore", **narrow)) == {}
    assert lost(trace, acf.sim.spec("tensordash", **narrow))["on_chip_banks"] > 0
    assert lost(trace, acf.sim.spec("tensorcore", **few))["on_chip_banks"] > 0


@given(st.integers(1, 70), st.floats(0, 1), st.integers(0, 99))
def test_one_scratchpad_bank_is_nearly_dense_and_as_many_as_steps_cost_nothing(
    k: int, density: float, seed: int
) -> None:
    rows = PackedRows.from_bool(np.random.default_rng(seed).random((8, k)) < density)
    by_banks = [tile_cycles(rows, 4, 4, 4, PAPER_MOVES, banks) for banks in (1, 2, 3, 4)]
    steps = -(-k // 4)
    assert all((cycles <= steps).all() for cycles in by_banks)
    assert (by_banks[0] >= steps - 4).all()  # the last buffer full drains without refilling
    assert (by_banks[3] == tile_cycles(rows, 4, 4, 4, PAPER_MOVES)).all()
    assert (by_banks[1] == tile_cycles(rows, 4, 4, 4, PAPER_MOVES, 2, use_table=False)).all()


@pytest.mark.parametrize("density", [0.1, 0.4, 0.8])
def test_fewer_scratchpad_banks_are_slower(density: float) -> None:
    rows = PackedRows.from_bool(np.random.default_rng(0).random((400, 300)) < density)
    totals = [int(tile_cycles(rows, 4, 4, 4, PAPER_MOVES, banks).sum()) for banks in (1, 2, 3, 4)]
    assert totals[0] > 1.05 * totals[1]
    assert totals[1] >= totals[2]
    # As many banks as steps of lookahead are more than enough, says section III; at half zeros a greedy schedule
    # may even be a cycle in a thousand quicker with them.
    assert totals[2] == pytest.approx(totals[3], rel=0.25 if density < 0.2 else 0.001)


@given(st.integers(1, 60), st.integers(1, 3), st.floats(0, 1), st.integers(0, 99))
def test_slots_add_up_with_any_number_of_banks(k: int, banks: int, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.random((9, k)) < density, rng.random((k, 5)) < 0.9
    trace = acf.Trace.from_matmuls([acf.Matmul("fc", "forward", a, b)])
    spec = acf.sim.spec(
        "tensordash", cores=2, scratchpad_banks=banks, transposers=1, bank_blocks_per_cycle=1, on_chip_bytes=400_000
    )
    result = acf.simulate(trace, spec)
    assert result.utilization * result.cycles + sum(result.stalls.values()) == pytest.approx(result.cycles)
    assert all(slots >= 0 for op in result.ops for slots in op.lost_slots.values())


def test_two_scratchpad_banks_halve_what_all_zeros_gain_and_say_so() -> None:
    trace = conv_trace("forward", 1.0)
    spec = acf.sim.spec("tensordash", cores=1, dram_pin_bytes_per_s=PATIENT)
    dense, four, two = (
        acf.simulate(trace, machine)
        for machine in (acf.sim.spec("tensorcore", cores=1), spec, replace(spec, scratchpad_banks=2))
    )
    assert four.speedup_over(dense) == pytest.approx(4.0)
    assert two.speedup_over(dense) == pytest.approx(2.0, rel=0.03)
    assert two.stalls["scratchpad_banks"] == two.cycles - four.cycles


def test_fewer_banks_and_transposers_take_less_area() -> None:
    spec = acf.sim.spec("tensordash")
    assert replace(spec, scratchpad_banks=1).area_mm2["sram"] == pytest.approx(
        acf.sim.spec("tensorcore").area_mm2["sram"]
    )
    assert spec.area_mm2["mac"] - replace(spec, transposers=64).area_mm2["mac"] == pytest.approx(0.37 / 2)


def test_the_baseline_has_the_layout_and_transposers_of_tensordash() -> None:
    shared = {item.name for item in fields(TensorCore)}
    assert {"layout_values", "bank_blocks_per_cycle", "transposers", "multicast"} <= shared
    assert acf.sim.spec("tensorcore").supply == acf.sim.spec("tensordash").supply
    assert acf.sim.spec("tensorcore").transposer_count == 128


def test_transposers_are_charged_with_what_they_take_longer_than_the_banks() -> None:
    supply = Supply(layout_values=4, sharing_cores=1, blocks_per_memory_cycle=2, transposed_blocks_per_cycle=1)
    gemm = Gemm(np.ones((4, 16), dtype=bool), np.ones((16, 4), dtype=bool), transposed=(False, True))
    # 16 blocks of either operand: 8 cycles of their own memory's banks, 16 of the transposers.
    demand = supply.demand(gemm, (4, 4))
    assert supply.waits([demand], 4) == {"on_chip_banks": 4, "transposers": 8}
    assert supply.waits([demand], 20) == {}
    assert supply.waits([demand, demand], 20) == {"transposers": 12}
