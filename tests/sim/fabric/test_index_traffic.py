"""Descriptor and index in traffic, time and energy of the fabric."""

from dataclasses import replace

import numpy as np
import pytest

import acf.sim
from acf.lowering import Gemm
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.packing import lower_product
from acf.lowering.product_index import build_index
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import tile_product
from acf.sim.fabric.index_traffic import IndexTraffic, index_traffic
from acf.sim.fabric.runner import run_product

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
    program = lower_product(product, SPEC, mapping)
    found = index_traffic(mapping, product, program, SPEC)
    index = build_index(product, mapping, SPEC)
    at = index.descriptor
    blocks_and_sizes = at.owners_at + (at.mask_at - at.batches_at)
    assert found.fetched_bytes == index.host_bytes + index.index_bytes - 4 * blocks_and_sizes


def test_walk_cycles_bound_those_of_the_controller_in_gates() -> None:
    pytest.importorskip("amaranth")
    from acf.rtl.design.fabric.sizes import FabricSizes
    from acf.rtl.design.index.controller_cycles import controller_cycles
    from acf.rtl.design.index.index_controller import IndexSizes

    product = tile_product(sparse_gemm(), SPEC)
    for group_columns in (1, 2):
        mapping = OutputStationaryMapping.balanced(product, SPEC, group_columns)
        found = index_traffic(mapping, product, lower_product(product, SPEC, mapping), SPEC)
        memory = build_index(product, mapping, SPEC).memory()
        gates = len(list(controller_cycles(memory, IndexSizes(FabricSizes(SPEC)))))
        assert gates <= found.walk_cycles <= 1.15 * gates


def test_the_index_takes_time_and_energy_and_crosses_the_pins() -> None:
    gemm = sparse_gemm()
    product = tile_product(gemm, SPEC)
    program = lower_product(product, SPEC)
    free = run_product(SPEC, gemm, product, program, 1000)
    index = IndexTraffic(fetched_bytes=500, walked_bytes=1000, set_up_cycles=40, walk_cycles=50)
    paid = run_product(SPEC, gemm, product, program, 1000, index)
    latency = SPEC.dram_port.latency_cycles
    assert paid.cycles >= free.cycles + 2 * latency + 40
    assert paid.lost_slots["fill"] >= free.lost_slots["fill"] + (2 * latency + 40) * SPEC.macs_per_cycle
    assert (free.streamed_bytes, paid.streamed_bytes) == (0, 500)
    assert free.energy_j["index"] == 0
    assert paid.energy_j["index"] > 0
    slow = run_product(SPEC, gemm, product, program, 1000, replace(index, walk_cycles=10**6))
    assert slow.cycles >= 10**6


def test_a_simulated_step_reads_its_descriptors_from_dram() -> None:
    gemm = sparse_gemm()
    assert SPEC.count(gemm).streamed_bytes > 96
