"""The fabric on the packet-switched mesh: every tile arrives, every cycle is accounted for."""

import numpy as np
import pytest

import acf.sim
from acf.errors import ArchitectureError
from acf.lowering import Gemm, lower_gemm
from acf.sim.fabric import AdaptiveFabric, packet_sample, play
from acf.sim.fabric.packet_sample import first_packets
from acf.sim.fabric.packet_stepper import step_packets
from acf.sim.fabric.traffic import REASONS, WORK, Timing, Traffic
from acf.sim.memory import DramTraffic
from acf.sim.registry import spec_of_kind


def fabric(**changes: object) -> AdaptiveFabric:
    return spec_of_kind(AdaptiveFabric, "acf-512", mesh_rows=3, mesh_columns=4, **changes)


PACKETS, LINES = fabric(interconnect="packet"), fabric()


def product(m: int, k: int, n: int, density: float = 0.5) -> Gemm:
    rng = np.random.default_rng(0)
    blocks = np.kron(rng.random((k // 16, n // 16)) < density, np.ones((16, 16), dtype=bool))
    return Gemm(rng.random((m, k)) < 0.5, blocks)


@pytest.mark.parametrize(("gemm", "reduces"), [(product(512, 64, 128), False), (product(32, 1024, 32), True)])
def test_scus_do_the_same_work_as_on_lines_and_account_for_every_cycle(gemm: Gemm, reduces: bool) -> None:
    program = lower_gemm(gemm, PACKETS)
    assert program.reduces == reduces
    scu_cycles = np.zeros((PACKETS.scus, len(REASONS)), dtype=np.int64)
    traffic = Traffic.of(program, np.zeros(program.rows.packets, dtype=np.int64))
    cycles = step_packets(traffic, Timing.of(PACKETS, 0), scu_cycles, PACKETS)
    assert (scu_cycles.sum(axis=1) == cycles).all()
    assert (scu_cycles >= 0).all()
    assert (scu_cycles[:, WORK] == play(program, LINES).scu_cycles[:, WORK]).all()


def test_narrow_links_hold_the_units_up() -> None:
    gemm = product(512, 64, 128)
    narrow, wide = (fabric(interconnect="packet", engine="exact", link_bytes=size).count(gemm) for size in (4, 32))
    assert narrow.cycles > wide.cycles
    assert narrow.lost_slots["mesh"] > wide.lost_slots["mesh"]


def test_the_first_packets_of_a_product_stand_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    gemm = product(1024, 128, 128)
    exact = fabric(interconnect="packet", engine="exact").count(gemm)
    monkeypatch.setattr(packet_sample, "SAMPLED_PACKETS", 300)
    sampled = PACKETS.count(gemm)
    assert sampled.cycles == pytest.approx(exact.cycles, rel=0.1)
    assert sampled.effectual_macs + sum(sampled.lost_slots.values()) == sampled.cycles * PACKETS.macs_per_cycle


def test_a_cut_program_keeps_whole_packets_in_order() -> None:
    program = lower_gemm(product(1024, 128, 128), LINES)
    traffic = Traffic.of(program, np.zeros(program.rows.packets, dtype=np.int64))
    part = first_packets(traffic, 300)
    assert 300 <= part.line.size < traffic.line.size
    assert sorted(part.order) == list(range(part.line.size))
    assert part.copy_first[-1] == part.copy_cluster.size == part.copy_distance.size
    assert first_packets(traffic, 10**6) is traffic


def test_dram_is_timed_behind_packets_too() -> None:
    exact = fabric(interconnect="packet", engine="exact", dram_pin_bytes_per_s=1e9)
    gemm = product(512, 64, 128)
    waiting = exact.count_with_traffic(gemm, DramTraffic(40_000, 10_000, 20_000))
    assert waiting.cycles >= 70_000 / 1e9 * 250e6
    assert waiting.lost_slots["memory"] > 0


def test_packets_need_timed_memory_and_another_entry_than_lines() -> None:
    with pytest.raises(ArchitectureError, match="interconnect \"packet\" with memory_model 'rate'"):
        acf.sim.spec("acf-512", interconnect="packet", memory_model="rate")
    with pytest.raises(ArchitectureError, match='play knows lines, not interconnect "packet"'):
        play(lower_gemm(product(64, 64, 64), PACKETS), PACKETS)


def test_a_scaled_product_waits_for_memory_as_long_as_on_lines() -> None:
    slow = {"dram_pin_bytes_per_s": 1e9}
    gemm, traffic = product(512, 64, 128), DramTraffic(40_000, 10_000, 20_000)
    packets, lines = (
        fabric(interconnect=name, **slow).count_with_traffic(gemm, traffic) for name in ("packet", "mesh")
    )
    assert packets.lost_slots["memory"] == lines.lost_slots["memory"] > 0
