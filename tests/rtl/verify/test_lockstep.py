"""Random products on the model and on the gates: same cycles, same counters, same bits."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

import acf.sim
from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.verify.lockstep.fabric_simulation import FabricSimulation
from acf.rtl.verify.lockstep.products import Product, random_product
from acf.rtl.verify.lockstep.run import run_lockstep
from acf.rtl.verify.lockstep.training_step import training_step
from acf.sim.fabric import play
from tests.rtl.verify.conftest import compiled
from tests.rtl.verify.tiny_cluster import TINY_CLUSTER


@pytest.mark.parametrize("seed", range(20))
def test_four_scus_run_a_random_program_as_the_model_does(seed: int, four_scus: FabricSimulation) -> None:
    both = run_lockstep(random_product(seed, tile=8, most=4), four_scus)
    assert both.divergence is None, str(both.divergence)


def test_the_random_programs_cover_both_mappings_stalls_and_several_rounds(four_scus: FabricSimulation) -> None:
    shape = four_scus.sizes.shape
    products = [random_product(seed, tile=8, most=4) for seed in range(20)]
    programs = [product.lower(shape) for product in products]
    assert {program.reduces for program in programs} == {True, False}
    assert any(program.rounds > 1 for program in programs)
    assert any(product.stall_seed is not None for product in products)
    assert sum(program.rows.packets > 0 for program in programs) >= 12


@pytest.mark.parametrize("seed", range(12))
def test_tiles_in_csc_form_are_run_as_the_model_does(seed: int, csc_scu: FabricSimulation) -> None:
    both = run_lockstep(random_product(seed, tile=16, most=3), csc_scu)
    assert both.divergence is None, str(both.divergence)


def test_some_random_programs_are_shorter_in_csc_form_and_some_longer(csc_scu: FabricSimulation) -> None:
    csc = csc_scu.sizes.shape
    flits = [
        [int(random_product(seed, tile=16, most=3).lower(shape).rows.flits.sum()) for seed in range(12)]
        for shape in (csc, replace(csc, tile_format="bitmap"))
    ]
    assert any(one < other for one, other in zip(*flits, strict=True))
    assert any(one > other for one, other in zip(*flits, strict=True))


def test_twelve_scus_run_a_random_program_as_the_model_does(twelve_scus: FabricSimulation) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((60, 44)) * (rng.random((60, 44)) < 0.5)
    b = rng.standard_normal((44, 52)) * np.kron(rng.random((6, 7)) < 0.6, np.ones((8, 8)))[:44, :52]
    both = run_lockstep(Product(bf16_bits(a), bf16_bits(b), stall_seed=1), twelve_scus)
    assert both.divergence is None, str(both.divergence)
    output = both.fabric.output.view(np.float32)
    assert np.allclose(output, bf16_values(bf16_bits(a)) @ bf16_values(bf16_bits(b)), rtol=1e-2, atol=1e-2)


def test_two_adders_in_turn_add_up_a_column_as_the_model_does(twelve_scus: FabricSimulation) -> None:
    rng = np.random.default_rng(0)
    a, b = (bf16_bits(rng.standard_normal(size)) for size in ((8, 96), (96, 16)))
    both = run_lockstep(Product(a, b, stall_seed=None), twelve_scus)
    assert both.program.reduces
    assert both.divergence is None, str(both.divergence)


def test_the_simulator_plays_the_cycles_that_the_gates_take(four_scus: FabricSimulation) -> None:
    product = replace(random_product(1, tile=8, most=4), stall_seed=None)
    both = run_lockstep(product, four_scus)
    played = play(both.program, four_scus.sizes.shape)
    assert both.fabric.cycles == played.cycles > 0
    assert (both.fabric.scu_cycles == played.scu_cycles).all()


def test_amaranths_simulator_runs_a_small_program_as_the_model_does() -> None:
    shape = acf.sim.spec("acf-512", **TINY_CLUSTER, scus_per_cluster=2, link_bytes=16)
    fabric = FabricSimulation.of(FabricSizes(shape, command_depth=16, memory_flits=32), "pysim")
    product = random_product(1, tile=8, most=2)
    both = run_lockstep(product, fabric)
    assert both.fabric.cycles > 50
    assert both.divergence is None, str(both.divergence)


def test_an_scu_that_shares_its_port_holds_a_block_and_a_row_of_sums_as_the_model_does() -> None:
    shape = acf.sim.spec(
        "acf-512",
        **TINY_CLUSTER,
        scus_per_cluster=2,
        lanes=4,
        skip="serial",
        accumulate_in="registers",
        held_rows=4,
        link_bytes=16,
    )
    assert shape.scus_per_port == 2
    fabric = FabricSimulation.of(FabricSizes(shape, command_depth=16, memory_flits=64), "pysim")
    rng = np.random.default_rng(0)
    one_row = rng.standard_normal((1, 24))
    several = rng.standard_normal((5, 16)) * (rng.random((5, 16)) < 0.4)
    for a in (one_row, several):
        product = Product(bf16_bits(a), bf16_bits(rng.standard_normal((a.shape[1], 12))), stall_seed=None)
        both = run_lockstep(product, fabric)
        assert both.fabric.cycles > 0
        assert both.divergence is None, str(both.divergence)


def test_a_cluster_that_reads_more_sums_than_a_flit_holds_loses_none() -> None:
    shape = acf.sim.spec("acf-512", **TINY_CLUSTER, scus_per_cluster=4, lanes=4, skip="serial", link_bytes=16)
    fabric = compiled(FabricSizes(shape, command_depth=16, memory_flits=64))
    a, b = (np.random.default_rng(seed).standard_normal((8, 8)) for seed in (0, 1))
    both = run_lockstep(Product(bf16_bits(a), bf16_bits(b)), fabric)
    assert both.divergence is None, str(both.divergence)


def test_an_scu_that_holds_a_block_runs_full_tiles_and_others_as_the_model_does(holding_scu: FabricSimulation) -> None:
    assert not holding_scu.has_counters
    rng = np.random.default_rng(0)
    one_row = rng.standard_normal((1, 24))  # the last sum of a tile is the first one of the next, a cycle later
    zeros = np.repeat((1.0, 0.3, 1.0, 0.05, 1.0), 8)  # full tiles next to tiles with zeros, and tiles of three rows
    mixed = rng.standard_normal((19, 40)) * (rng.random((19, 40)) < zeros)
    for a, columns, stall_seed in ((one_row, 8, None), (mixed, 8, None), (mixed, 12, 3), (mixed, 23, None)):
        b = rng.standard_normal((a.shape[1], columns)) * (rng.random((a.shape[1], columns)) < 0.8)
        both = run_lockstep(Product(bf16_bits(a), bf16_bits(b), stall_seed=stall_seed), holding_scu)
        assert both.fabric.cycles > 0
        assert both.divergence is None, str(both.divergence)


def test_a_zero_of_the_block_leaves_a_negative_zero_as_it_is(holding_scu: FabricSimulation) -> None:
    a, b = np.ones((8, 8)), np.zeros((8, 8))
    b[:2] = [[-1.5 * 2.0**-126], [2.0**-126]]  # their sum is too small for float32: a negative zero
    both = run_lockstep(Product(bf16_bits(a), bf16_bits(b)), holding_scu)
    assert both.divergence is None, str(both.divergence)
    assert (both.fabric.output == 0x80000000).all()


@pytest.mark.parametrize("seed", [*range(8), 20])  # 20: a bank is used again as soon as it is empty
def test_an_scu_that_holds_a_block_runs_a_random_program_as_the_model_does(
    seed: int, holding_scu: FabricSimulation
) -> None:
    both = run_lockstep(random_product(seed, tile=8, most=4), holding_scu)
    assert both.divergence is None, str(both.divergence)


def test_a_training_step_after_algorithm_1_is_computed_by_the_gates(four_scus: FabricSimulation) -> None:
    step = training_step(tokens=24, inputs=32, outputs=24, block=8)
    assert step.moved_blocks > 0
    for phase, reference in step.references().items():
        both = run_lockstep(step.products[phase], four_scus)
        assert both.divergence is None, f"{phase}: {both.divergence}"
        output = both.fabric.output.view(np.float32)
        assert np.allclose(output, reference, rtol=1e-2, atol=1e-2 * np.abs(reference).max()), phase


def test_a_fabric_with_other_latency_diverges_from_the_model(four_scus: FabricSimulation) -> None:
    sizes = replace(four_scus.sizes, shape=replace(four_scus.sizes.shape, sram_cycles=6))
    slower = FabricSimulation(sizes, four_scus.simulation)
    both = run_lockstep(replace(random_product(1, tile=8, most=4), stall_seed=None), slower)
    assert both.divergence is not None
    assert both.divergence.port == "send"
    assert both.divergence.cycle == four_scus.sizes.shape.sram_cycles
