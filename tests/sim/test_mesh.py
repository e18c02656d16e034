"""The mesh: BookSim's latencies, nothing lost or doubled, tables and their cost, estimates against the exact model."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from acf.cost.mesh import link_pj, router_mm2, router_pass_pj
from acf.errors import ArchitectureError
from acf.sim.mesh import (
    MeshRun,
    MeshSpec,
    MulticastGroup,
    RoutingTable,
    TableBanks,
    estimate_flows,
    estimate_latency,
    link_flits,
    most_table_update_cycles,
    route,
    simulate_packets,
)
from acf.sim.mesh.estimate import interleaved
from acf.sim.mesh.spec import LOCAL

GOLDEN = json.loads((Path(__file__).parent / "golden" / "noc_mesh.json").read_text())
SMALL = MeshSpec(columns=4, rows=4)


@cache
def table_of(spec: MeshSpec) -> RoutingTable:
    return RoutingTable.build(spec)


def traffic(k: int, pattern: str, load: float, cycles: int, seed: int) -> tuple[NDArray[np.int64], ...]:
    """Sources, destinations and times of single flits made at random, as many per node and cycle as ``load`` says."""
    rng = np.random.default_rng(seed)
    made, source = np.nonzero(rng.random((cycles, k * k)) < load)
    uniform = rng.integers(0, k * k, made.size)
    return source, uniform if pattern == "uniform" else source % k * k + source // k, made


def latency(k: int, pattern: str, load: float, window: tuple[int, int], seeds: int = 1) -> float:
    """Mean cycles from the making of a flit to its arrival, of those made in the window."""
    spec = MeshSpec(columns=k, rows=k)
    means = []
    for seed in range(seeds):
        source, destination, made = traffic(k, pattern, load, window[1], seed)
        run = simulate_packets(spec, table_of(spec), source, destination, made)
        means.append(np.mean((run.arrival_cycle - made)[made >= window[0]]))
    return float(np.mean(means))


@pytest.mark.parametrize("row", GOLDEN["below_saturation"], ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_latency_below_saturation_is_booksims(row: list) -> None:
    k, pattern, load, cycles = row
    assert latency(k, pattern, load, (1000, 4000)) == pytest.approx(cycles, rel=GOLDEN["tolerance"])


@pytest.mark.parametrize("row", GOLDEN["at_the_knee"]["rows"], ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_the_knee_lies_at_booksims_load(row: list) -> None:
    k, pattern, load, cycles = row
    tolerance = GOLDEN["at_the_knee"]["tolerance"]
    below, above = (latency(k, pattern, load * factor, (3000, 6000), 2) for factor in (1 - tolerance, 1 + tolerance))
    assert below < cycles < above


@pytest.mark.parametrize("row", GOLDEN["above_capacity"]["rows"], ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_above_capacity_latency_grows_as_booksims(row: list) -> None:
    k, pattern, load, cycles = row
    assert latency(k, pattern, load, (3000, 10_000), 6) == pytest.approx(cycles, rel=GOLDEN["tolerance"])


@pytest.mark.parametrize("row", GOLDEN["saturated"], ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_the_mesh_saturates_where_booksim_does(row: list) -> None:
    k, pattern, load = row
    assert latency(k, pattern, load, (3000, 6000)) > 5 * latency(k, pattern, 0.01, (0, 4000))


@pytest.mark.parametrize("destination", range(16))
def test_an_empty_mesh_takes_four_cycles_per_router_and_two_at_the_ends(destination: int) -> None:
    run = simulate_packets(SMALL, table_of(SMALL), [5], [destination], [100])
    assert run.arrival_cycle[0] - 100 == 4 * (SMALL.hops(5, destination) + 1) + 2
    assert run.flit_hops == SMALL.hops(5, destination)


def test_one_flow_fills_its_links() -> None:
    run = simulate_packets(SMALL, table_of(SMALL), [0] * 50, [15] * 50, [0] * 50, 10)
    assert run.cycles == 500 + 4 * (SMALL.hops(0, 15) + 1) + 1


def test_a_full_mesh_holds_the_sender_back() -> None:
    """Two senders, one destination: its link takes a flit per cycle, so the senders wait in turn."""
    run = simulate_packets(SMALL, table_of(SMALL), [0] * 100 + [2] * 100, [1] * 200, [0] * 200)
    assert 200 <= run.cycles < 220
    assert run.entry_cycle[99] > 150


def groups_of(rng: np.random.Generator, spec: MeshSpec, count: int) -> tuple[MulticastGroup, ...]:
    return tuple(
        MulticastGroup(
            int(rng.integers(spec.routers)),
            tuple(rng.choice(spec.routers, size=int(rng.integers(1, spec.routers + 1)), replace=False).tolist()),
        )
        for _ in range(count)
    )


def random_packets(
    columns: int, rows: int, queue_flits: int, channels: int, packets: int, seed: int
) -> tuple[MeshSpec, RoutingTable, tuple[NDArray[np.int64], ...], MeshRun]:
    """A mesh, groups and packets, all random, half of the packets to groups."""
    rng = np.random.default_rng(seed)
    spec = MeshSpec(columns=columns, rows=rows, queue_flits=queue_flits, virtual_channels=channels)
    groups = groups_of(rng, spec, 5)
    table = RoutingTable.build(spec, groups)
    route_id = rng.integers(0, spec.routers, packets)
    to_group = rng.random(packets) < 0.5
    group = rng.integers(0, len(groups), packets)
    route_id[to_group] = spec.routers + group[to_group]
    source = rng.integers(0, spec.routers, packets)
    source[to_group] = [groups[index].source for index in group[to_group]]
    given_ = source, route_id, rng.integers(0, 40, packets), rng.integers(1, 6, packets)
    return spec, table, given_, simulate_packets(spec, table, *given_, limit_cycles=100_000)


SHAPES = {
    "columns": st.integers(1, 5),
    "rows": st.integers(1, 5),
    "queue_flits": st.integers(1, 5),
    "channels": st.integers(1, 3),
    "packets": st.integers(1, 80),
    "seed": st.integers(0, 10**6),
}


@settings(max_examples=80, deadline=None)
@given(**SHAPES)
def test_every_flit_reaches_every_destination_exactly_once(
    columns: int, rows: int, queue_flits: int, channels: int, packets: int, seed: int
) -> None:
    """No flit is lost, doubled or stuck: a deadlock would exceed the limit of cycles and raise."""
    spec, table, (source, route_id, made, flits), run = random_packets(
        columns, rows, queue_flits, channels, packets, seed
    )
    fan_out = [len(table.destinations(int(name))) for name in route_id]
    assert np.array_equal(np.diff(run.first_delivery), fan_out)
    assert np.array_equal(run.delivered_flits, np.repeat(flits, fan_out))
    assert run.link_flits[:, LOCAL].sum() == (flits * fan_out).sum()
    assert np.array_equal(run.link_flits, link_flits(spec, table, source, route_id, flits))
    for packet in range(packets):
        for place, destination in enumerate(table.destinations(int(route_id[packet]))):
            took = run.delivery_cycle[run.first_delivery[packet] + place] - made[packet]
            assert took >= 4 * (spec.hops(int(source[packet]), destination) + 1) + 2 + flits[packet] - 1


@settings(max_examples=10, deadline=None)
@given(**SHAPES)
def test_the_same_packets_take_the_same_cycles(
    columns: int, rows: int, queue_flits: int, channels: int, packets: int, seed: int
) -> None:
    first, second = (random_packets(columns, rows, queue_flits, channels, packets, seed)[-1] for _ in range(2))
    assert np.array_equal(first.delivery_cycle, second.delivery_cycle)


def test_idle_time_is_skipped_without_a_difference() -> None:
    source, destination, made = traffic(4, "uniform", 0.3, 200, 1)
    early = simulate_packets(SMALL, table_of(SMALL), source, destination, made)
    late = simulate_packets(
        SMALL,
        table_of(SMALL),
        np.concatenate([source, source]),
        np.concatenate([destination, destination]),
        np.concatenate([made, made + 10**7]),
    )
    assert np.array_equal(late.arrival_cycle[: made.size], early.arrival_cycle)
    assert late.arrival_cycle[made.size :].max() < 10**7 + 400


def test_a_multicast_is_copied_where_its_ways_part() -> None:
    spec = MeshSpec(columns=3, rows=3)
    table = RoutingTable.build(spec, [MulticastGroup(0, (2, 5, 8))])  # the right column, from the lower left corner
    run = simulate_packets(spec, table, [0], [table.id_of_group(0)], [0])
    assert run.flit_hops == 4  # two along the row, two up the column; three single packets would take 2 + 3 + 4
    assert run.delivery_cycle.tolist() == [4 * 3 + 2, 4 * 4 + 2, 4 * 5 + 2]


def test_one_blocked_branch_does_not_stop_the_other() -> None:
    """Copies leave as their outputs are free: the flit waits in its queue until the last has left."""
    spec = MeshSpec(columns=3, rows=1)
    table = RoutingTable.build(spec, [MulticastGroup(1, (0, 2))])
    busy = 60  # the way east is wanted by another sender, the way west is not
    source, route_id = [0] * busy + [1] * 20, [2] * busy + [table.id_of_group(0)] * 20
    run = simulate_packets(spec, table, source, route_id, [0] * (busy + 20))
    west, east = (run.delivery_cycle[run.first_delivery[busy] + place] for place in (0, 1))
    assert west <= east


def test_routes_go_along_the_row_first() -> None:
    assert [router for router, _ in route(SMALL, 0, 15)] == [0, 1, 2, 3, 7, 11, 15]


def test_only_entries_that_change_are_written() -> None:
    groups = groups_of(np.random.default_rng(1), SMALL, 4)
    banks = TableBanks(table_of(SMALL))
    first = banks.prepare(groups)
    assert first.entries == np.count_nonzero(RoutingTable.build(SMALL, groups).ports[:, 16:])
    banks.swap()
    assert banks.active.groups == groups
    banks.prepare(groups)  # the other bank has never held them
    banks.swap()
    again = banks.prepare((*groups[:3], MulticastGroup(0, (1,))))
    assert 0 < again.entries < first.entries
    assert again.cycles < first.cycles


def test_the_controller_is_never_slower_than_its_bound() -> None:
    for count in (1, 10, 100):
        update = TableBanks(table_of(SMALL)).prepare(groups_of(np.random.default_rng(count), SMALL, count))
        assert update.entries <= update.cycles <= most_table_update_cycles(SMALL, count)


def test_banks_are_swapped_only_after_one_was_written() -> None:
    with pytest.raises(ArchitectureError, match="call prepare before swap"):
        TableBanks(table_of(SMALL)).swap()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["permutation", "random", "multicast"])
def test_long_flows_are_estimated_within_a_tenth(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spec = MeshSpec(columns=8, rows=int(rng.integers(2, 9)))
    routers, groups = spec.routers, groups_of(rng, spec, 20) if kind == "multicast" else ()
    if kind == "permutation":
        source, route_id, flits = np.arange(routers), rng.permutation(routers), np.full(routers, 600)
    elif kind == "random":
        count = 4 * routers
        source, route_id = rng.integers(0, routers, count), rng.integers(0, routers, count)
        flits = rng.integers(20, 500, count)
    else:
        source, route_id = np.array([group.source for group in groups]), routers + np.arange(20)
        flits = rng.integers(20, 500, 20)
    table = RoutingTable.build(spec, groups)
    estimate = estimate_flows(spec, table, source, route_id, flits)
    sources, routes = interleaved(source, route_id.astype(np.int32), flits)
    run = simulate_packets(spec, table, sources, routes, np.zeros(sources.size))
    assert estimate.cycles == pytest.approx(run.cycles, rel=0.1)
    assert estimate.bound_cycles <= run.cycles
    assert np.array_equal(estimate.link_flits, run.link_flits)


@pytest.mark.parametrize("load", [0.05, 0.2, 0.3])
def test_latency_below_saturation_is_estimated_within_a_tenth(load: float) -> None:
    spec = MeshSpec(columns=8, rows=8)
    source, destination = np.divmod(np.arange(spec.routers**2), spec.routers)
    rate = np.full(source.size, load / spec.routers)
    estimate = estimate_latency(spec, table_of(spec), source, destination, rate)
    assert estimate.mean() == pytest.approx(latency(8, "uniform", load, (1000, 3000)), rel=0.1)


def test_latency_is_not_estimated_beyond_saturation() -> None:
    with pytest.raises(ArchitectureError, match="use estimate_flows"):
        estimate_latency(SMALL, table_of(SMALL), [0, 1], [3, 3], [0.5, 0.5])


def test_unusable_values_are_refused_with_the_rule() -> None:
    with pytest.raises(ArchitectureError, match="columns 0 is no whole number from 1 to 65536"):
        MeshSpec(columns=0)
    with pytest.raises(ArchitectureError, match=r"queue_flits 2\.5 is no whole number"):
        MeshSpec(queue_flits=2.5)  # type: ignore[arg-type]
    with pytest.raises(ArchitectureError, match="a mesh of 60000 x 60000 has more than 65536 routers"):
        MeshSpec(columns=60_000, rows=60_000)
    with pytest.raises(ArchitectureError, match="endpoint 16 of a group"):
        RoutingTable.build(SMALL, [MulticastGroup(0, (16,))])
    with pytest.raises(ArchitectureError, match="named twice"):
        RoutingTable.build(SMALL, [MulticastGroup(0, (1, 1))])
    with pytest.raises(ArchitectureError, match="route_id must lie in 0 to 15"):
        simulate_packets(SMALL, table_of(SMALL), [0], [16], [0])
    with pytest.raises(ArchitectureError, match="another endpoint than the group's source"):
        simulate_packets(SMALL, RoutingTable.build(SMALL, [MulticastGroup(0, (1,))]), [3], [16], [0])
    with pytest.raises(ArchitectureError, match="build the table for this mesh"):
        simulate_packets(MeshSpec(columns=2, rows=2), table_of(SMALL), [0], [1], [0])


def test_wider_flits_and_longer_links_cost_more() -> None:
    assert router_pass_pj(64, 128) > 2 * router_pass_pj(32, 128) > 0
    assert link_pj(32, 2.0) == pytest.approx(2 * link_pj(32, 1.0))
    assert router_mm2(32, 2, 8, 128) > router_mm2(32, 2, 4, 128) > router_mm2(32, 2, 4, 0)
