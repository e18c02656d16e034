"""The DRAM: JEDEC's rules, DRAMsim3's figures, and the measured table against the cycle-exact model."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acf.errors import ArchitectureError
from acf.sim.dram import (
    MEMORIES,
    DramSpec,
    dram_spec,
    energy_per_bit,
    locate,
    random_runs,
    simulate_requests,
    sustained_bandwidth,
    sustained_rate,
)
from acf.sim.dram.kernel import offer, step
from acf.sim.dram.state import empty_state, rules_of

GOLDEN = json.loads((Path(__file__).parent / "golden" / "dram_hbm2.json").read_text())
HBM2, DDR4 = MEMORIES["hbm2"], MEMORIES["ddr4-2400"]


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda row: f"{row[0]} B")
def test_streams_of_runs_cost_what_dramsim3_says(row: list[float]) -> None:
    run_bytes, gigabytes_per_s, row_hit_share, latency_cycles, pj_per_bit = row
    rate = sustained_rate(HBM2, int(run_bytes) // 64)
    assert rate.bytes_per_s / 1e9 == pytest.approx(gigabytes_per_s, rel=GOLDEN["tolerance"])
    assert rate.row_hit_share == pytest.approx(row_hit_share, rel=GOLDEN["tolerance"], abs=1e-3)
    assert rate.read_latency_cycles == pytest.approx(latency_cycles, rel=GOLDEN["tolerance"])
    assert rate.pj_per_bit == pytest.approx(pj_per_bit, rel=GOLDEN["tolerance"])


@pytest.mark.parametrize("spec", [HBM2, DDR4], ids=["hbm2", "ddr4-2400"])
@pytest.mark.parametrize("run_bytes", [64, 192, 512, 2048, 4096, 10240])
def test_the_measured_table_agrees_with_another_longer_stream(spec: DramSpec, run_bytes: int) -> None:
    address, _ = random_runs(spec, run_bytes, 100_000, seed=7)
    run = simulate_requests(spec, np.arange(address.size), address)
    assert sustained_bandwidth(spec, run_bytes) == pytest.approx(run.bytes_per_s, rel=0.02)
    assert energy_per_bit(spec, run_bytes) == pytest.approx(run.pj_per_bit, rel=0.02)


@pytest.mark.parametrize("spec", [HBM2, DDR4], ids=["hbm2", "ddr4-2400"])
def test_a_lone_read_takes_activation_latency_and_burst(spec: DramSpec) -> None:
    timing = spec.timing
    run = simulate_requests(spec, [100], [0])
    handed_over = 1  # accepted and handed to the bank in cycle 100, activated in 101
    expected = 100 + handed_over + timing.activate_to_column + timing.read_latency + timing.burst_cycles
    assert run.completion_cycle.tolist() == [expected]
    assert (run.activates, run.reads, run.row_hits) == (1, 1, 0)


def test_a_second_read_of_an_open_row_needs_no_activation() -> None:
    run = simulate_requests(HBM2, [0, 100], [0, 64])
    assert (run.activates, run.row_hits) == (1, 1)
    assert run.completion_cycle[1] == 100 + 1 + HBM2.timing.read_latency + HBM2.timing.burst_cycles


def test_another_row_of_the_same_bank_waits_for_the_precharge() -> None:
    timing = HBM2.timing
    row_stride = HBM2.row_bytes * HBM2.channels * HBM2.banks
    run = simulate_requests(HBM2, [0, 0], [0, row_stride])
    row_cycle = timing.activate_to_precharge + timing.precharge_to_activate
    assert run.activates == 2
    assert run.completion_cycle[1] - run.completion_cycle[0] == row_cycle


def test_no_more_than_four_rows_are_opened_in_a_window() -> None:
    """Five banks, five activates: the fifth waits until tFAW after the first."""
    bank_stride = HBM2.row_bytes * HBM2.channels * HBM2.banks_per_group  # one bank in every group, then the next
    address = [0, bank_stride, 2 * bank_stride, 3 * bank_stride, HBM2.row_bytes * HBM2.channels]
    done = np.sort(simulate_requests(HBM2, [0] * 5, address).completion_cycle)
    assert done[4] - done[0] == HBM2.timing.four_activates
    assert done[1] - done[0] == HBM2.timing.activate_to_activate_other_group


def test_a_burst_in_the_same_group_waits_longer_where_the_device_says_so() -> None:
    in_a_row = replace(DDR4, address_order=HBM2.address_order)
    bursts = np.arange(4) * 64
    in_one_group = np.diff(simulate_requests(in_a_row, np.zeros(4), bursts).completion_cycle)
    assert in_one_group.tolist() == [DDR4.timing.column_to_column_same_group] * 3
    around_the_groups = np.diff(simulate_requests(DDR4, np.zeros(4), bursts).completion_cycle)
    assert around_the_groups.tolist() == [DDR4.timing.column_to_column_other_group] * 3


def test_refresh_costs_the_share_of_time_it_takes() -> None:
    rare = replace(HBM2, timing=replace(HBM2.timing, refresh_interval=10**6))
    address, _ = random_runs(HBM2, 4096, 50_000, seed=3)
    with_refresh, without = (simulate_requests(spec, np.arange(address.size), address) for spec in (HBM2, rare))
    assert with_refresh.refreshes == HBM2.channels * (with_refresh.cycles // HBM2.timing.refresh_interval)
    lost = 1 - with_refresh.bytes_per_s / without.bytes_per_s
    assert lost == pytest.approx(HBM2.timing.refresh / HBM2.timing.refresh_interval, abs=0.02)


def test_no_stream_is_faster_than_the_pins() -> None:
    for spec in (HBM2, DDR4):
        assert 0.85 < sustained_bandwidth(spec, 2**16) / spec.peak_bytes_per_s < 1


def test_bytes_nobody_wants_are_paid_for() -> None:
    assert sustained_bandwidth(HBM2, 32) == pytest.approx(sustained_bandwidth(HBM2, 64) / 2)
    assert energy_per_bit(HBM2, 32) == pytest.approx(2 * energy_per_bit(HBM2, 64))


def test_turning_the_bus_around_costs_bandwidth() -> None:
    assert sustained_bandwidth(HBM2, 4096, write_share=0.5) < 0.97 * sustained_bandwidth(HBM2, 4096)


def test_a_read_sees_the_write_before_it_and_not_the_one_after() -> None:
    run = simulate_requests(HBM2, [0, 1], [0, 0], [True, False])
    assert run.forwarded_reads == 1 or run.completion_cycle[1] > run.completion_cycle[0]
    run = simulate_requests(HBM2, [0, 1], [0, 0], [False, True])
    assert run.completion_cycle[1] > run.completion_cycle[0]


def test_a_full_queue_holds_the_sender_back() -> None:
    run = simulate_requests(dram_spec("hbm2", 1), np.zeros(200), np.arange(200) * 2**20)
    waited = run.accepted_cycle - np.arange(200)
    assert waited[:32].max() == 0
    assert waited[-1] > 100


def test_sources_offer_side_by_side() -> None:
    address = np.arange(64) * 64 + np.repeat([0, HBM2.row_bytes], 32)
    one = simulate_requests(HBM2, np.zeros(64), address)
    two = simulate_requests(HBM2, np.zeros(64), address, source=np.repeat([0, 1], 32))
    assert two.accepted_cycle.max() < one.accepted_cycle.max()


def test_addresses_map_to_one_place_each() -> None:
    small = replace(HBM2, rows=4)
    places = locate(small, np.arange(0, small.capacity_bytes, small.burst_bytes))
    keys = ((places.channel * small.banks + places.bank) * small.rows + places.row) * small.columns + places.column
    assert np.unique(keys).size == keys.size == small.capacity_bytes // small.burst_bytes


@settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 4095), st.booleans(), st.integers(0, 2)),
        min_size=1,
        max_size=150,
    ),
    kind=st.sampled_from(["hbm2", "ddr4-2400"]),
)
def test_every_request_is_done_once_and_never_before_it_can_be(
    requests: list[tuple[int, int, bool, int]], kind: str
) -> None:
    arrival, page, is_write, source = (np.array(column) for column in zip(*requests, strict=True))
    spec = MEMORIES[kind]
    run = simulate_requests(spec, arrival, page * 1024, is_write, source)
    again = simulate_requests(spec, arrival, page * 1024, is_write, source)
    assert np.array_equal(run.completion_cycle, again.completion_cycle)
    assert (run.accepted_cycle >= arrival).all()
    assert (run.completion_cycle > run.accepted_cycle).all()
    assert run.reads + run.writes + run.forwarded_reads == arrival.size
    assert run.writes == int(is_write.sum())
    assert run.activates + run.row_hits >= run.reads + run.writes
    data_cycles = (run.reads + run.writes) * spec.timing.burst_cycles
    assert data_cycles <= spec.channels * (int(run.completion_cycle.max()) + 1)


def test_idle_time_is_skipped_without_a_difference_in_energy() -> None:
    """A second request far away in time: standby and refreshes of the whole wait are still counted."""
    wait = 100 * HBM2.timing.refresh_interval + 17
    run = simulate_requests(HBM2, [0, wait], [0, 0])
    assert run.refreshes == HBM2.channels * 100
    assert run.activates == 2
    assert run.active_cycles < 2 * HBM2.timing.refresh_interval + 200


def test_unusable_values_are_refused_with_the_rule() -> None:
    with pytest.raises(ArchitectureError, match="address_order"):
        replace(HBM2, address_order=("row", "column"))
    with pytest.raises(ArchitectureError, match="channels 0 is no number above 0"):
        replace(MEMORIES["hbm2"], channels=0)
    with pytest.raises(ArchitectureError, match=r"channels 1\.5 is no whole number; give one"):
        replace(MEMORIES["hbm2"], channels=1.5)  # type: ignore[arg-type]
    with pytest.raises(ArchitectureError, match=r"1000000 channels of 16 banks have .* entries of queues, more than"):
        replace(MEMORIES["hbm2"], channels=1_000_000)
    with pytest.raises(ArchitectureError, match="no DRAM figures for 'hbm9'"):
        dram_spec("hbm9", 1)
    with pytest.raises(ArchitectureError, match="run_bytes 0"):
        sustained_bandwidth(HBM2, 0)
    with pytest.raises(ArchitectureError, match="2 entries for 1 requests"):
        simulate_requests(HBM2, [0], [0, 64])
    with pytest.raises(ArchitectureError, match="before 0"):
        simulate_requests(HBM2, [-1], [0])


@pytest.mark.parametrize("kind", ["hbm2", "ddr4-2400"])
def test_quiet_channels_and_refused_sources_are_skipped_without_a_difference(kind: str) -> None:
    """Against every channel searched, and every source asked, in every cycle."""
    rng = np.random.default_rng(5)
    fast = replace(MEMORIES[kind].timing, refresh=40, refresh_interval=500)
    spec = replace(MEMORIES[kind], channels=1, timing=fast)
    address, is_write = rng.integers(0, 1 << 16, 300) // 64 * 64, rng.random(300) < 0.4
    run = simulate_requests(spec, np.zeros(300), address, is_write)
    places, state, rules = locate(spec, address), empty_state(spec), rules_of(spec)
    table = np.stack([np.arange(300), places.bank, places.row, places.column], axis=1)
    completion, cycle, offered = np.zeros(300, dtype=np.int64), 0, 0
    while (completion == 0).any():
        if offered < 300 and offer(state, rules, 0, table, offered, bool(is_write[offered]), cycle, completion):
            offered += 1
        state.column_from[:] = state.row_from[:] = 0
        state.hand_over[:] = 1
        step(state, rules, 0, cycle, completion)
        cycle += 1
    assert run.refreshes > 0
    np.testing.assert_array_equal(run.completion_cycle, completion)
