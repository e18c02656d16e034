"""SAT: N:M weights on a systolic array, hand-worked cases, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import acf
from acf.errors import AcfError
from acf.lowering import Gemm
from acf.sim.accelerators.sat import Product
from acf.sim.accelerators.systolic import Array, weight_stationary
from acf.trace import BitTensor

SAT = acf.sim.spec("sat")
DENSE = replace(SAT, group_kept=8)


def nm_pattern(k: int, n: int, kept: int = 2, size: int = 8, seed: int = 0) -> NDArray[np.bool_]:
    """``[k, n]`` with exactly ``kept`` of every ``size`` along ``k``."""
    ranks = np.random.default_rng(seed).random((k // size, size, n)).argsort(axis=1)
    return (ranks < kept).reshape(k, n)


def gemm(weights: NDArray[np.bool_], m: int = 256, phase: str = "forward", taps: int = 1) -> Gemm:
    return Gemm(np.ones((m, weights.shape[0]), dtype=bool), weights, None, phase, taps)


@pytest.mark.parametrize("phase", ["forward", "input_grad"])
def test_two_of_eight_weights_take_a_quarter_of_the_cycles(phase: str) -> None:
    sparse = SAT.count(gemm(nm_pattern(512, 256), 1024, phase))
    dense = SAT.count(gemm(np.ones((512, 256), dtype=bool), 1024, phase))
    assert dense.cycles / sparse.cycles == pytest.approx(4, rel=0.02)
    assert sparse.lost_slots["ineffectual"] == 0


def test_one_group_with_a_weight_too_many_makes_the_layer_dense() -> None:
    weights = nm_pattern(64, 32)
    assert SAT.follows_groups(weights)
    weights[:8, 5] = [True] * 3 + [False] * 5
    assert not SAT.follows_groups(weights)
    assert SAT.count(gemm(weights)).cycles == SAT.count(gemm(np.ones((64, 32), dtype=bool))).cycles


def test_groups_run_over_channels_not_over_taps() -> None:
    weights = nm_pattern(24, 16)
    assert SAT.follows_groups(weights, taps=3)
    assert not SAT.follows_groups(weights, taps=2)  # 12 channels at each tap: a group of 8 would cross into the next


def test_channels_that_groups_do_not_divide_run_dense() -> None:
    weights = np.zeros((9 * 3, 64), dtype=bool)  # an RGB stem, whatever its zeros
    assert not SAT.follows_groups(weights, taps=9)


def test_weight_gradients_are_dense_and_output_stationary() -> None:
    product = Product("weight_grad", 64, 1024, 64)
    assert SAT.map_product(product).dataflow == "output-stationary"
    assert SAT.product_cycles(product) == DENSE.product_cycles(product)


def test_the_dataflow_with_fewer_cycles_is_chosen() -> None:
    # Few outputs, long sums: there are enough rows to fill PEs only if they hold weights; and the other way round.
    assert SAT.map_product(Product("forward", 64, 4096, 32)).dataflow == "weight-stationary"
    assert SAT.map_product(Product("forward", 512, 16, 512)).dataflow == "output-stationary"


@pytest.mark.parametrize("latency", [4, 8])
def test_without_interleaving_the_adder_latency_decides(latency: int) -> None:
    product = Product("forward", 1024, 512, 512)
    alone = replace(SAT, adder_latency_cycles=latency, interleave=1)
    together = replace(SAT, adder_latency_cycles=latency, interleave=latency)
    ideal = 1024 * 512 * 512 / SAT.macs_per_cycle
    assert ideal / alone.product_cycles(product) == pytest.approx(1 / latency, rel=0.02)
    assert ideal / together.product_cycles(product) > 0.98


def test_an_output_stationary_product_by_hand() -> None:
    small = acf.sim.spec(
        "sat", rows=2, columns=2, adder_latency_cycles=4, interleave=4, update_lanes=64, reduction_lanes=64
    )
    mapping = small.map_product(Product("weight_grad", 4, 10, 4))
    # 16 sums on 4 PEs, 4 each in turn: 10 terms x 4 turns; then 2 cycles to cross the array and 4 to add the last.
    assert (mapping.work_cycles, mapping.latency_cycles, mapping.fill_cycles) == (40, 0, 6)


def test_a_weight_stationary_product_by_hand() -> None:
    array = Array(rows=2, columns=2, adder_latency_cycles=4, interleave=4)
    mapping = weight_stationary(array, m=6, groups=4, steps_per_group=2, n=2)
    # 4 groups on 2 rows are 2 tiles. 6 rows of data go 4 at once, then 2 that wait as if they were 4: 8 turns of 2
    # weights in each tile. The first weights take 2 x 2 cycles, crossing 2, the last addition 4.
    assert (mapping.work_cycles, mapping.latency_cycles, mapping.fill_cycles) == (24, 8, 10)


def test_pregeneration_hides_the_reduction_engine() -> None:
    hidden = Product("forward", 1024, 512, 512, sparse=True)
    exposed = replace(SAT, pregenerate=False)
    groups = 512 * 512 // 8
    assert exposed.product_cycles(hidden) - SAT.product_cycles(hidden) == groups // 32 * 8
    assert SAT.engine_cycles(Product("weight_grad", 512, 1024, 512)) == 0


def test_the_array_waits_for_engines_that_are_slower() -> None:
    few_tokens = Product("weight_grad", 512, 16, 512)
    # Two compact forms at 32 weights a cycle take longer than 16 tokens on 1024 PEs; dense training only updates.
    assert SAT.product_cycles(few_tokens) == 2 * 512 * 512 // 32
    assert DENSE.product_cycles(few_tokens) == 512 * 512 // 32
    assert SAT.engine_cycles(replace(few_tokens, updates_weights=False)) == 0


@given(
    st.sampled_from(["forward", "input_grad", "weight_grad"]),
    st.tuples(*[st.integers(1, 100)] * 3),
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 6), st.integers(1, 6)),
    st.booleans(),
    st.booleans(),
)
def test_every_slot_is_accounted_for_in_every_phase(
    phase: str, sizes: tuple[int, int, int], array: tuple[int, int, int, int], sparse: bool, pregenerate: bool
) -> None:
    m, k, n = sizes
    rows, columns, latency, interleave = array
    machine = acf.sim.spec(
        "sat",
        rows=rows,
        columns=columns,
        adder_latency_cycles=latency,
        interleave=interleave,
        group_kept=1,
        group_size=4,
        pregenerate=pregenerate,
    )
    weights = nm_pattern(4 * k, n, 1, 4) if sparse else np.ones((k, n), dtype=bool)
    count = machine.count(gemm(weights, m, phase))
    assert count.effectual_macs + sum(count.lost_slots.values()) == count.cycles * rows * columns
    assert min(count.lost_slots.values()) >= 0


def test_simulating_patterns_and_counting_shapes_give_the_same_cycles() -> None:
    weights = nm_pattern(64, 48)
    trace = acf.Trace.from_matmuls([acf.Matmul("fc", "forward", np.ones((100, 64)), weights)])
    played = acf.simulate(trace, replace(SAT, dram_pin_bytes_per_s=1e15))
    assert played.cycles == SAT.product_cycles(Product("forward", 100, 64, 48, sparse=True))


def test_compact_weights_and_nothing_else_are_small_in_memory() -> None:
    compact, dense = BitTensor.from_array(nm_pattern(64, 32)), BitTensor.from_array(np.ones((64, 32)))
    assert SAT.stored_bytes(compact, "weight") == 64 * 32 // 4 * 19 // 8  # FP16 and a 3-bit index each
    assert SAT.stored_bytes(dense, "weight") == SAT.stored_bytes(compact, "activation") == 64 * 32 * 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"group_kept": 9}, "group_kept 9 exceeds group_size 8"),
        ({"group_size": 0}, "group_size 0 must be above 0"),
        ({"interleave": 0}, "interleave 0 must be above 0"),
        ({"technology_nm": 16}, "published for 65 nm only"),
    ],
)
def test_an_impossible_machine_is_refused_in_one_line(values: dict[str, int], message: str) -> None:
    with pytest.raises(AcfError, match=message) as caught:
        acf.sim.spec("sat", **values)
    assert "\n" not in str(caught.value)
