"""Descriptor and index in traffic, time and energy of the fabric."""

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

import acf
import acf.sim
from acf.cost.control import CONTROL_UNITS
from acf.lowering import Gemm
from acf.lowering.mapping import choose_mapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.packing import lower_product
from acf.lowering.product_index import build_index
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import tile_product
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.activity import Activity
from acf.sim.fabric.control import INDEX_CONTROLLERS, control_j, control_units, index_controller, index_controller_bytes
from acf.sim.fabric.index_traffic import IndexTraffic, index_traffic
from acf.sim.fabric.runner import run_product
from acf.sim.memory import DramTraffic
from acf.sim.registry import spec_of_kind

SPEC = acf.sim.spec("acf-512", mesh_rows=2, mesh_columns=2, accumulator_tiles=4)


def sparse_gemm(masked: bool = False) -> Gemm:
    rng = np.random.default_rng(0)
    blocks = np.kron(rng.random((6, 8)) < 0.3, np.ones((16, 16), dtype=bool))
    needed = np.kron(rng.random((13, 8)) < 0.5, np.ones((16, 16), dtype=bool)) if masked else None
    return Gemm(rng.random((208, 96)) < 0.4, blocks, needed)


@pytest.mark.parametrize("masked", [False, True], ids=["all outputs", "some outputs"])
@pytest.mark.parametrize("mapped", [OutputStationaryMapping, SplitKMapping])
def test_fetched_bytes_are_those_of_the_index_beside_the_operands_own(mapped, masked: bool) -> None:
    product = tile_product(sparse_gemm(masked), SPEC)
    mapping = mapped.balanced(product, SPEC, 2)
    found = index_traffic(mapping, product, SPEC)
    index = build_index(product, mapping, SPEC, direct=True)
    at = index.descriptor
    blocks_and_sizes = at.owners_at + (at.mask_at - at.batches_at)
    if at.split_k:
        blocks_and_sizes -= 2 * at.k_tiles  # where the tiles of a k_tile begin is no part of a tensor
    else:
        blocks_and_sizes -= at.row_rounds * at.k_tiles  # mesh rows with data, a word for one group
    assert found.fetched_bytes == index.host_bytes + index.index_bytes - 4 * blocks_and_sizes


@pytest.mark.parametrize("masked", [False, True], ids=["all outputs", "some outputs"])
@pytest.mark.parametrize("mapped", [OutputStationaryMapping, SplitKMapping])
@pytest.mark.parametrize("side", [2, 4])
def test_cycles_are_those_of_the_controllers_in_gates(mapped, masked: bool, side: int) -> None:
    pytest.importorskip("amaranth")
    from acf.rtl.design.fabric.sizes import FabricSizes
    from acf.rtl.design.index.controller_cycles import controller_cycles
    from acf.rtl.design.index.index_controller import IndexSizes
    from acf.rtl.design.index.offers import played_against

    def is_packet(offer) -> bool:
        return mapped is OutputStationaryMapping or offer.line < side

    spec = replace(SPEC, mesh_rows=side, mesh_columns=side)
    product = tile_product(sparse_gemm(masked), spec)
    all_ready = np.ones((10_000, 2 * side), dtype=bool)
    for groups_or_columns in (1, 2):
        mapping = mapped.balanced(product, spec, groups_or_columns)
        memory = build_index(product, mapping, spec, direct=mapped is SplitKMapping).memory()
        for sharing in range(1, side + 1):
            found = index_traffic(mapping, product, spec, sharing)
            limits = IndexSizes(FabricSizes(spec), sharing=sharing)
            gates = played_against([controller_cycles(memory, limits, number) for number in range(sharing)], all_ready)
            assert found.walk_cycles == max(map(len, gates))
            packets = [cycle for each in gates for cycle, offer in enumerate(each) if offer and is_packet(offer)]
            if side == 2:  # on a larger mesh the first block may be of a controller that has looked back for longer
                assert 0 <= min(packets) - found.set_up_cycles <= (8 if masked else 0)  # blocks that no cluster uses


def test_the_index_takes_time_and_energy_and_crosses_the_pins() -> None:
    gemm = sparse_gemm()
    product = tile_product(gemm, SPEC)
    program = lower_product(product, SPEC)
    free = run_product(SPEC, gemm, product, program, DramTraffic(1000))
    index = IndexTraffic(fetched_bytes=500, walked_bytes=1000, set_up_cycles=40, walk_cycles=50)
    paid = run_product(SPEC, gemm, product, program, DramTraffic(1000), index)
    latency = SPEC.dram_port.latency_cycles
    assert paid.cycles >= free.cycles + 2 * latency + 40
    assert paid.lost_slots["fill"] >= free.lost_slots["fill"] + (2 * latency + 40) * SPEC.macs_per_cycle
    assert (free.streamed_bytes, paid.streamed_bytes) == (0, 500)
    assert free.energy_j["index"] == 0
    assert paid.energy_j["index"] > 0
    slow = run_product(SPEC, gemm, product, program, DramTraffic(1000), replace(index, walk_cycles=10**6))
    assert slow.cycles >= 10**6


def test_a_simulated_step_reads_its_descriptors_from_dram() -> None:
    gemm = sparse_gemm()
    assert SPEC.count(gemm).streamed_bytes > 96


def layers(count: int) -> acf.Trace:
    rng = np.random.default_rng(0)
    products = [
        acf.Matmul(f"fc{place}", "forward", rng.random((256, 128)) < 0.5, np.ones((128, 128))) for place in range(count)
    ]
    return acf.Trace.from_matmuls(products)


def test_a_product_hides_the_set_up_of_the_next_one() -> None:
    serial = acf.simulate(layers(3), replace(SPEC, index_controllers=1))
    ahead = acf.simulate(layers(3), replace(SPEC, index_controllers=2))
    assert ahead.ops[0].cycles == serial.ops[0].cycles
    for before, after in zip(serial.ops[1:], ahead.ops[1:], strict=True):
        assert before.cycles - after.cycles > 2 * SPEC.dram_port.latency_cycles
        assert after.lost_slots["fill"] >= 0
        assert after.effectual_macs == before.effectual_macs
        per_cycle = [op.energy_j["clock"] / op.cycles for op in (ahead.ops[0], after)]
        assert per_cycle[0] == pytest.approx(per_cycle[1])


def test_no_more_of_a_set_up_is_hidden_than_the_product_before_has_spare_cycles() -> None:
    spec = replace(SPEC, index_controllers=2)
    count = spec.count(sparse_gemm())
    short = replace(count, set_up=replace(count.set_up, spare_cycles=7))
    assert count.after(short).cycles == count.cycles - 7
    assert count.after(count).cycles == count.cycles - count.set_up.cycles
    two = short + count
    assert two.cycles == 2 * count.cycles - 7
    assert two.effectual_macs + sum(two.lost_slots.values()) == two.cycles * spec.macs_per_cycle


def test_a_walk_that_takes_longer_than_its_packets_still_bounds_the_product() -> None:
    gemm = sparse_gemm()
    spec = replace(SPEC, index_controllers=2)
    product = tile_product(gemm, spec)
    index = IndexTraffic(fetched_bytes=500, walked_bytes=1000, set_up_cycles=40, walk_cycles=10**5)
    count = run_product(spec, gemm, product, lower_product(product, spec), DramTraffic(), index)
    assert count.after(count).cycles == 10**5 - 40


def test_a_large_mesh_takes_the_mapping_whose_walk_does_not_keep_its_units_waiting() -> None:
    spec = spec_of_kind(AdaptiveFabric, "acf-h200")
    rng = np.random.default_rng(0)
    needed = np.kron(rng.random((32, 128)) < 0.5, np.ones((16, 16), dtype=bool))
    gemm = Gemm(np.ones((512, 196), dtype=bool), np.ones((196, 2048), dtype=bool), needed, "weight_grad")
    product = tile_product(gemm, spec)
    by_work = choose_mapping(product, spec.program_shape())
    index = index_traffic(by_work, product, spec, spec.walking_controllers)
    waits = run_product(spec, gemm, product, lower_product(product, spec, by_work), DramTraffic(), index)
    assert 2 * spec.count(gemm).cycles < waits.cycles


def test_controllers_share_the_products_of_a_batch_and_leave_no_time_while_all_walk() -> None:
    index = IndexTraffic(fetched_bytes=96, walked_bytes=400, set_up_cycles=40, walk_cycles=500)
    assert index.times(5, 1) == IndexTraffic(480, 2000, 40, 2500, 1)
    assert index.times(5, 4) == IndexTraffic(480, 2000, 40, 1000, 4)
    gemm, spec = sparse_gemm(), replace(SPEC, index_controllers=4)
    product = tile_product(gemm, spec)
    program = lower_product(product, spec)
    busy = run_product(spec, gemm, product, program, DramTraffic(), replace(index, walk_cycles=10**5, controllers=4))
    transfer = ceil(96 / spec.dram_sustained_bytes_per_s * spec.clock_hz)
    assert busy.set_up.spare_cycles == 2 * spec.dram_port.latency_cycles + transfer
    free = run_product(spec, gemm, product, program, DramTraffic(), replace(index, walk_cycles=10**5, controllers=1))
    assert free.set_up.spare_cycles == free.cycles


@pytest.mark.parametrize("mapped", [OutputStationaryMapping, SplitKMapping])
def test_controllers_that_share_a_product_walk_it_faster_and_read_more(mapped) -> None:
    product = tile_product(sparse_gemm(), SPEC)
    mapping = mapped.balanced(product, SPEC, 2)
    one, two, many = (index_traffic(mapping, product, SPEC, controllers) for controllers in (1, 2, 64))
    assert two.walk_cycles < one.walk_cycles
    assert two.walked_bytes > one.walked_bytes
    assert many == two  # a mesh row has one controller at most


def test_more_index_controllers_take_more_area_and_leak_more() -> None:
    one, four = replace(SPEC, index_controllers=1), replace(SPEC, index_controllers=4)
    assert four.area_mm2["sram"] > one.area_mm2["sram"]
    assert four.area_mm2["control"] > one.area_mm2["control"]
    assert four.leakage_w > one.leakage_w


def test_index_controllers_of_a_mesh_beyond_those_synthesised_are_charged_in_proportion() -> None:
    small = acf.sim.spec("acf-512", mesh_rows=16, mesh_columns=16, index_controllers=32, clock_gating="units")
    wide = replace(small, mesh_rows=48, mesh_columns=48, index_controllers=96)
    largest = list(INDEX_CONTROLLERS)[-1]
    side, reached = INDEX_CONTROLLERS[largest]
    growth = max(48 / side, (48 + 48 - 1) / reached)
    assert control_units(wide)[largest] == pytest.approx(96 * growth)
    walking, idle = Activity(1000, walk_cycles=1000), Activity(1000)
    walk_j = [control_j(spec, walking)["clock"] - control_j(spec, idle)["clock"] for spec in (small, wide)]
    assert walk_j[1] > 1.4 * walk_j[0] > 0
    by_mesh_column = 4 * (1_280 + 5_376)
    planner = (64 * 48 + 256 * 6) // 8  # tables that are registers up to 16 columns
    assert index_controller_bytes(wide) == index_controller_bytes(small) + by_mesh_column + planner


@pytest.mark.parametrize(("clusters", "charged"), [(4, 70_527), (8, 112_557), (16, 140_099)])
def test_a_controller_is_charged_by_the_least_that_was_synthesised_and_bounds_it(clusters: int, charged: int) -> None:
    controllers = 2 * clusters if clusters > 8 else 4
    spec = acf.sim.spec("acf-512", mesh_rows=clusters, mesh_columns=clusters, index_controllers=controllers)
    name, size = index_controller(spec)
    assert size * CONTROL_UNITS[name].gate_equivalents == charged
