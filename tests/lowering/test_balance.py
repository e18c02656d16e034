"""Balancers: everybody gets a share, heavy items are spread, shared tiles are kept together."""

import numpy as np
import pytest

from acf.lowering import BALANCERS


@pytest.mark.parametrize("name", BALANCERS)
def test_every_item_goes_to_one_bin(name: str) -> None:
    rng = np.random.default_rng(0)
    shares = BALANCERS[name].share(rng.integers(1, 9, 40), rng.random((40, 12)) < 0.3, 7)
    assert shares.shape == (40,)
    assert set(shares.tolist()) <= set(range(7))


def test_longest_first_is_never_worse_than_a_third_above_the_mean_or_the_heaviest() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        weights = rng.integers(1, 30, 24)
        shares = BALANCERS["longest-first"].share(weights, np.zeros((24, 1), dtype=bool), 5)
        loads = np.bincount(shares, weights, 5)
        assert loads.max() <= max(4 / 3 * weights.sum() / 5, weights.max()) + 30 / 3


def test_locality_keeps_items_that_read_the_same_tiles_together() -> None:
    reads = np.zeros((32, 4), dtype=bool)
    reads[np.arange(32), np.arange(32) % 4] = True
    weights = np.ones(32, dtype=np.int64)

    def tiles_read(name: str) -> int:
        shares = BALANCERS[name].share(weights, reads, 4)
        return sum(int(reads[shares == index].any(axis=0).sum()) for index in range(4))

    assert tiles_read("locality-aware") <= tiles_read("longest-first")


def test_better_balancers_cost_the_controller_more() -> None:
    cycles = [
        BALANCERS[name].controller_cycles(128, 64, 8) for name in ("round-robin", "longest-first", "locality-aware")
    ]
    assert cycles == sorted(cycles)
    assert cycles[0] < cycles[-1]
