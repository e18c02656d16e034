"""Tiles of a stream transposed in passing, and values spread to all lanes."""

import numpy as np
import pytest

from acf.rtl.device.vector.turning import Spreader, TileTurner
from acf.rtl.tools.simulation import Simulation

SIDE, TILES = 4, 3


def flits(tiles: np.ndarray) -> np.ndarray:
    """A word of 64 bits for every row."""
    return np.ascontiguousarray(tiles, dtype="<u2").view("<u8").reshape(-1)


def turned(flits: np.ndarray, seed: int | None) -> tuple[list[int], int]:
    """What leaves a turner, and in how many cycles; with ``seed``, both sides wait at random."""
    turner, rng = Simulation(TileTurner(SIDE), "pysim"), np.random.default_rng(seed)
    sent, found = 0, []
    for cycle in range(200):
        offers, takes = (1, 1) if seed is None else rng.integers(0, 2, 2).tolist()
        valid = int(offers and sent < len(flits))
        word = flits[min(sent, len(flits) - 1)]
        seen = turner.run({"valid": [valid], "flit": [word], "more": [int(sent < len(flits))], "take": [takes]})
        sent += valid and int(seen["ready"][0])
        if takes and seen["out_valid"][0]:
            found.append(int(seen["out"][0]))
        if len(found) == len(flits):
            return found, cycle + 1
    raise AssertionError("the turner gave fewer flits than it took")


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_tiles_leave_transposed_whoever_waits(seed: int | None) -> None:
    tiles = np.random.default_rng(0).integers(0, 1 << 16, (TILES, SIDE, SIDE))
    found, cycles = turned(flits(tiles), seed)
    assert found == flits(tiles.swapaxes(1, 2)).tolist()
    if seed is None:
        assert cycles == (TILES + 1) * SIDE  # a tile enters while the one before it leaves


def test_every_value_of_a_flit_is_spread_to_all_lanes() -> None:
    rows = np.random.default_rng(1).integers(0, 1 << 16, (2, SIDE))
    spreader, found = Simulation(Spreader(SIDE), "pysim"), []
    for row in flits(rows):
        seen = spreader.run({"flit": [row], "take": [0]})
        assert not seen["ready"][0]
        seen = spreader.run({"flit": [row] * SIDE, "take": [1] * SIDE})
        assert seen["ready"].tolist() == [0] * (SIDE - 1) + [1]
        found += seen["out"].tolist()
    assert found == flits(np.repeat(rows.reshape(-1, 1), SIDE, axis=1)).tolist()
