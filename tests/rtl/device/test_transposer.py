"""Tiles transposed on their way from memory."""

import numpy as np

from acf.rtl.device.transposer import TileTransposer
from acf.rtl.tools.simulation import Simulation
from tests.rtl.device.programs import SIZES


def test_two_tiles_one_after_the_other_come_out_transposed() -> None:
    transposer = Simulation(TileTransposer(SIZES), "pysim")
    side, flits = SIZES.shape.tile, SIZES.tile_flits
    for first in (1, 1000):
        tile = np.arange(first, first + side * side, dtype="<u2").reshape(side, side)
        transposer.run({"valid": 1, "flit": tile.reshape(flits, -1).view("<u8")})
        outputs = transposer.run({}, flits + 1)
        assert outputs["busy"].tolist() == [1] * flits + [0]
        assert outputs["last"].tolist() == [0] * (flits - 1) + [1, 0]
        turned = np.ascontiguousarray(outputs["transposed"][:flits]).view("<u2").reshape(side, side)
        assert np.array_equal(turned, tile.T)
