"""The two engines of the fabric: one goes from event to event, one through every cycle, and they never differ."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import acf.sim
from acf.errors import ArchitectureError
from acf.lowering import BALANCERS, FabricShape, Gemm, lower_gemm
from acf.lowering.fabric_shape import INTERCONNECTS, SKIP_MODES
from acf.sim.fabric import play
from acf.sim.fabric.play import DramPort
from acf.sim.fabric.traffic import REASONS

LINES = tuple(name for name in INTERCONNECTS if name != "packet")


@st.composite
def shapes(draw: st.DrawFn) -> FabricShape:
    accumulator_tiles = draw(st.integers(1, 5))
    return acf.sim.spec(
        "acf-512",
        mesh_rows=draw(st.integers(1, 4)),
        mesh_columns=draw(st.integers(1, 5)),
        scus_per_cluster=draw(st.sampled_from((1, 2, 4, 8))),
        lanes=draw(st.sampled_from((1, 2, 16))),
        queue_packets=draw(st.integers(1, 5)),
        accumulator_tiles=accumulator_tiles,
        parallel_slots=accumulator_tiles + draw(st.integers(0, 6)),
        sum_adders=draw(st.sampled_from((1, 2, 32))),
        prefetch_packets=draw(st.integers(1, 6)),
        link_bytes=draw(st.sampled_from((16, 32, 128))),
        hop_cycles=draw(st.integers(1, 4)),
        sram_cycles=draw(st.integers(1, 6)),
        skip=draw(st.sampled_from(SKIP_MODES)),
        interconnect=draw(st.sampled_from(LINES)),
        balancer=draw(st.sampled_from(tuple(BALANCERS))),
    )


def block_pattern(rng: np.random.Generator, rows: int, columns: int, density: float) -> np.ndarray:
    blocks = rng.random((-(-rows // 16), -(-columns // 16))) < density
    return np.kron(blocks, np.ones((16, 16), dtype=bool))[:rows, :columns]


@st.composite
def gemms(draw: st.DrawFn) -> Gemm:
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    m, k, n = draw(st.integers(1, 150)), draw(st.integers(1, 150)), draw(st.integers(1, 100))
    a = rng.random((m, k)) < draw(st.sampled_from((0.02, 0.3, 1.0)))
    b = block_pattern(rng, k, n, draw(st.sampled_from((0.1, 0.5, 1.0))))
    needed = block_pattern(rng, m, n, 0.4) if draw(st.booleans()) else None
    return Gemm(a, b, needed)


@given(gemms(), shapes(), st.sampled_from((0, 5_000, 40_000)), st.sampled_from((3.7, 50.0)), st.integers(1, 40))
def test_both_engines_agree_to_the_cycle_and_on_every_stall(
    gemm: Gemm, shape: FabricShape, dram_bytes: int, bytes_per_cycle: float, latency: int
) -> None:
    program = lower_gemm(gemm, shape)
    port = DramPort(bytes_per_cycle, latency)
    fast = play(program, shape, port, dram_bytes)
    exact = play(program, shape, port, dram_bytes, "exact")
    assert fast.cycles == exact.cycles
    assert (fast.scu_cycles == exact.scu_cycles).all()


@given(gemms(), shapes())
def test_every_unit_accounts_for_every_cycle(gemm: Gemm, shape: FabricShape) -> None:
    played = play(lower_gemm(gemm, shape), shape)
    assert played.scu_cycles.shape == (shape.scus, len(REASONS))
    assert (played.scu_cycles >= 0).all()
    assert (played.scu_cycles.sum(axis=1) == played.cycles).all()


def test_fewer_adders_take_longer_for_the_sums_of_a_column() -> None:
    dense = np.ones((16, 2048), dtype=bool)
    shapes_by_adders = {adders: acf.sim.spec("acf-512", sum_adders=adders) for adders in (2, 8, 32)}
    cycles = {}
    for adders, shape in shapes_by_adders.items():
        program = lower_gemm(Gemm(dense, dense.T), shape)
        assert program.reduces
        cycles[adders] = play(program, shape).cycles
    assert cycles[2] > cycles[8] == cycles[32]


def test_memory_that_is_slow_holds_up_the_units_and_is_named() -> None:
    shape = acf.sim.spec("acf-512")
    program = lower_gemm(Gemm(np.ones((256, 256), dtype=bool), np.ones((256, 256), dtype=bool)), shape)
    quick = play(program, shape, DramPort(1e9, 1), 10**6)
    starved = play(program, shape, DramPort(1.0, 1), 10**6)
    assert starved.cycles >= 10**6 / shape.mesh_rows
    assert starved.by_reason["memory"] > 0.5 * starved.cycles * shape.scus
    assert quick.cycles < starved.cycles


def test_an_unknown_engine_is_refused() -> None:
    program = lower_gemm(Gemm(np.ones((4, 4), dtype=bool), np.ones((4, 4), dtype=bool)), acf.sim.spec("acf-512"))
    with pytest.raises(ArchitectureError, match="engine 'quick' is not one of fast, exact"):
        play(program, acf.sim.spec("acf-512"), engine="quick")
