"""Tiles in CSC form as a receiver takes them: at the last flit it tells where the non-zeros lie."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import acf.sim
from acf.lowering.tile_format import pack_tile
from acf.rtl.design.fabric.receiver import TileReceiver
from acf.rtl.design.fabric.sizes import FabricSizes

SHAPE = acf.sim.spec("acf-512", scus_per_cluster=4, tile_format="csc")


def tiles(tile: int) -> list[NDArray[np.uint16]]:
    """Tiles of many densities; among them an empty one, one line alone, and the last place alone."""
    rng = np.random.default_rng(tile)
    made = []
    for density in (0.02, 0.1, 0.3, 0.5, 0.7):
        pattern = rng.random((tile, tile)) < density
        made.append(np.where(pattern, rng.integers(1, 1 << 15, (tile, tile)), 0).astype(np.uint16))
    empty, line, corner = (np.zeros((tile, tile), dtype=np.uint16) for _ in range(3))
    line[2], corner[-1, -1] = 7, 0x8001
    return [*made, empty, line, corner]


@pytest.mark.parametrize(("tile", "link_bytes"), [(8, 16), (8, 64), (16, 32)])
def test_a_receiver_tells_the_non_zeros_of_tiles_in_csc_form(tile: int, link_bytes: int, interpret) -> None:
    sizes = FabricSizes(replace(SHAPE, tile=tile, link_bytes=link_bytes))
    simulation = interpret(TileReceiver(sizes, 2))
    for values in tiles(tile):
        payload = pack_tile(values, sizes.shape)
        flits = [payload[at : at + link_bytes].ljust(link_bytes, b"\0") for at in range(0, len(payload), link_bytes)]
        count = len(flits)
        seen = simulation.run(
            {
                "valid": np.ones(count, dtype=np.uint64),
                "packed": 1,
                "last": np.arange(count) == count - 1,
                "data": np.frombuffer(b"".join(flits), dtype="<u8").reshape(count, -1),
            }
        )
        expected = np.packbits((values & 0x7FFF) != 0, bitorder="little").tobytes()
        assert seen["bitmap"][-1].tobytes()[: len(expected)] == expected
        assert seen["whole"].tolist() == [0] * (count - 1) + [1]
