"""TensorDash with values: skipping alters no result, and the counting model counts the same cycles."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import acf.sim
from acf.errors import ArchitectureError
from acf.lowering import Gemm
from acf.sim.accelerators import TensorDash
from acf.sim.accelerators.functional import multiply, run_tile
from acf.sim.accelerators.moves import TWO_DEEP_MOVES, WIDE_MOVES

SPECS = [
    acf.sim.spec("tensordash", bypass_zeros_share=0.0, cores=1),
    acf.sim.spec("tensordash", bypass_zeros_share=0.0, cores=1, sides=2),
    acf.sim.spec("tensordash", bypass_zeros_share=0.0, cores=1, scratchpad_banks=2),
    acf.sim.spec("tensordash", bypass_zeros_share=0.0, cores=1, rows=2, columns=3, depth=2, moves=TWO_DEEP_MOVES),
    acf.sim.spec("tensordash", bypass_zeros_share=0.0, cores=1, lanes=16, depth=3, moves=WIDE_MOVES),
    acf.sim.spec("tensordash", bypass_zeros_share=0.0, cores=1, lanes=1, depth=1, moves=((0, 0),)),
]


def integers(seed: int, shape: tuple[int, int], density: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(-9, 10, shape) * (rng.random(shape) < density)


@given(
    st.sampled_from(SPECS),
    st.tuples(st.integers(0, 6), st.integers(0, 40), st.integers(0, 6)),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
    st.integers(0, 999),
)
def test_the_product_is_the_dense_one_exactly(
    spec: TensorDash, sizes: tuple[int, int, int], densities: tuple[float, float], seed: int
) -> None:
    m, k, n = sizes
    a, b = integers(seed, (m, k), densities[0]), integers(seed + 1, (k, n), densities[1])
    assert np.array_equal(multiply(a, b, spec), a @ b)


@given(st.sampled_from(SPECS), st.integers(1, 40), st.floats(0, 1), st.integers(0, 999))
def test_values_and_counts_take_the_same_cycles_between_dense_and_depth_times_as_fast(
    spec: TensorDash, k: int, density: float, seed: int
) -> None:
    a, b = integers(seed, (spec.rows, k), density), integers(seed + 1, (spec.columns, k), 0.9)
    assume((a != 0).mean() <= (b != 0).mean())  # else the counting model would skip the other operand
    run = run_tile(a, b, spec)
    assert run.cycles == spec.count(Gemm(a != 0, (b != 0).T)).cycles
    steps = -(-k // spec.lanes)
    assert -(-steps // spec.depth) <= run.cycles <= steps


def test_operands_that_do_not_meet_are_refused() -> None:
    with pytest.raises(ArchitectureError, match=r"a \[2, 3\] and b \[4, 2\] do not multiply"):
        multiply(np.ones((2, 3), dtype=np.int64), np.ones((4, 2), dtype=np.int64), acf.sim.spec("tensordash"))
