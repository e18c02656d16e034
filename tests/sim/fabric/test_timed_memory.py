"""DRAM and on-chip banks as the fabric's products see them: addresses, rates, waits."""

import numpy as np
import pytest

import acf.sim
from acf.errors import ArchitectureError
from acf.lowering import Gemm, lower_gemm
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.dram_streams import Sent, dram_stream
from acf.sim.fabric.tile_places import TilePlaces
from acf.sim.fabric.timed_memory import timed_dram_spec
from acf.sim.fabric.traffic import Traffic
from acf.sim.memory import DramTraffic
from acf.sim.registry import spec_of_kind


def fabric(**changes: object) -> AdaptiveFabric:
    return spec_of_kind(AdaptiveFabric, "acf-512", **changes)


def product(m: int, k: int, n: int, density: float, phase: str = "forward") -> Gemm:
    rng = np.random.default_rng(0)
    blocks = np.kron(rng.random((k // 16, n // 16)) < density, np.ones((16, 16), dtype=bool))
    return Gemm(rng.random((m, k)) < 0.5, blocks, phase=phase, transposed=(False, phase == "input_grad"))


def everything(gemm: Gemm, written_bytes: int = 0) -> DramTraffic:
    return DramTraffic(2 * gemm.left.nonzeros, 2 * gemm.right.nonzeros, written_bytes)


@pytest.mark.parametrize(
    ("shape", "written"), [((1024, 256, 256), False), ((1024, 256, 256), True), ((2048, 128, 512), True)], ids=str
)
def test_the_rate_of_the_address_stream_is_within_5_percent_of_every_burst_simulated(
    shape: tuple[int, int, int], written: bool
) -> None:
    gemm = product(*shape, density=0.2)
    traffic = everything(gemm, 2 * gemm.left.nonzeros if written else 0)
    fast, exact = (fabric(engine=engine).count_with_traffic(gemm, traffic).cycles for engine in ("fast", "exact"))
    assert fast == pytest.approx(exact, rel=0.05)


def test_operands_on_chip_take_as_long_as_without_a_memory_model_but_for_bank_conflicts() -> None:
    gemm = product(1024, 256, 256, 0.2)
    timed, rate = (fabric(memory_model=name).count(gemm).cycles for name in ("timed", "rate"))
    assert timed == pytest.approx(rate, rel=0.01)


def test_parallel_tiles_wait_for_dram_too() -> None:
    gemm = product(64, 512, 512, 1.0)
    weights = DramTraffic(right_bytes=2 * gemm.right.nonzeros)
    slow = {"dram_pin_bytes_per_s": 2e9}
    rate, timed = (fabric(memory_model=name, **slow).count_with_traffic(gemm, weights) for name in ("rate", "timed"))
    on_chip = fabric().count(gemm)
    assert timed.lost_slots["memory"] > 10 * on_chip.lost_slots["memory"]
    assert timed.cycles > weights.total_bytes / 2e9 * 250e6
    assert rate.cycles > on_chip.cycles


def test_write_backs_take_their_time_at_the_end() -> None:
    gemm = product(256, 64, 64, 0.5)
    written = DramTraffic(written_bytes=4_000_000)
    count = fabric().count_with_traffic(gemm, written)
    assert count.cycles > 4_000_000 / 76.8e9 * 250e6
    assert count.lost_slots["memory"] > 0


def test_one_bank_for_everybody_costs_cycles() -> None:
    gemm = product(512, 256, 256, 0.5)
    many, few = (fabric(bank_bytes=size).count(gemm).cycles for size in (131_072, 33_554_432))
    assert fabric(bank_bytes=33_554_432).on_chip_banks == 16  # one for each controller at least
    assert few > many


def stream_of(gemm: Gemm, traffic: DramTraffic) -> tuple[Traffic, TilePlaces, np.ndarray]:
    spec = fabric()
    program = lower_gemm(gemm, spec)
    flat = Traffic.of(program, np.zeros(program.rows.packets, dtype=np.int64))
    places = TilePlaces.of(program, gemm, spec.tile)
    stream = dram_stream(places, Sent(flat.order, flat.line, flat.flits), traffic, 64)
    return flat, places, np.split(stream.bursts, stream.first[1:-1])


def test_every_burst_of_both_operands_is_read_at_least_once_and_a_tile_only_with_its_first_packet() -> None:
    gemm = product(512, 128, 256, 0.5)
    traffic = everything(gemm)
    _, places, bursts = stream_of(gemm, traffic)
    read = np.unique(np.concatenate(bursts))
    left, right = -(-traffic.left_bytes // 64), -(-traffic.right_bytes // 64)
    base = -(-traffic.left_bytes // 2**16) * 2**16 // 64
    assert read.tolist() == [*range(left), *range(base, base + right)]
    fetching = [packet for packet, mine in enumerate(bursts) if mine.size]
    tiles = {(int(places.operand[packet]), int(places.place[packet])) for packet in fetching}
    assert len(tiles) == len(fetching)


def test_the_transpose_of_a_weight_is_read_in_the_order_in_which_it_is_stored() -> None:
    stored, walked = (
        TilePlaces.of(lower_gemm(gemm, fabric()), gemm, 16)
        for gemm in (product(64, 64, 128, 1.0), product(64, 64, 128, 1.0, "input_grad"))
    )
    weight = stored.place[stored.operand == 1], walked.place[walked.operand == 1]
    assert sorted(set(weight[0])) == sorted(set(weight[1])) == list(range(32))
    assert weight[0].tolist() != weight[1].tolist()


def test_a_memory_has_the_bandwidth_of_its_pins() -> None:
    for kind, pins, channels in (("ddr", 76.8e9, 4), ("hbm2", 1024e9, 32), ("ddr", 1e6, 1)):
        spec = timed_dram_spec(kind, pins)
        assert spec.channels == channels
        assert spec.peak_bytes_per_s == pytest.approx(pins)


def test_a_memory_without_timing_is_refused_by_name() -> None:
    with pytest.raises(ArchitectureError, match=r"dram_kind 'lpddr4' has no timing in .*, only ddr, hbm2 have"):
        acf.sim.spec("acf-512", dram_kind="lpddr4")
    assert acf.sim.spec("acf-512", dram_kind="lpddr4", memory_model="rate").dram_kind == "lpddr4"
