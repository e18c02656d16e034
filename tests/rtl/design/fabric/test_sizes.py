"""Which shapes of fabrics can be built."""

from dataclasses import replace

import pytest

import acf.sim
from acf.errors import RtlError
from acf.rtl.design.fabric.sizes import FabricSizes

SMALL = acf.sim.spec(
    "acf-512",
    mesh_rows=2,
    mesh_columns=2,
    scus_per_cluster=2,
    tile=8,
    link_bytes=16,
    queue_packets=2,
    parallel_slots=4,
    accumulator_tiles=2,
    prefetch_packets=2,
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"skip": "gate"}, "skip 'gate' is the simulator's alone"),
        ({"tile_format": "csc", "tile": 32, "link_bytes": 64}, "tile_format 'csc' with tiles of 32 is the simulator's"),
        ({"lanes": 2}, "with skip 'both' the 2 lanes"),
        ({"interconnect": "crossbar"}, "a crossbar has ideal links"),
        ({"scus_per_cluster": 3}, "scus_per_cluster 3 must divide the tile 8"),
        ({"link_bytes": 8}, "link_bytes 8 must be a power of two from a row of values, 16, to a tile, 128"),
        ({"sum_adders": 3}, "sum_adders 3 must be a power of two"),
        ({"accumulate_in": "registers"}, "accumulate_in 'registers' with skip 'both'"),
        ({"accumulate_in": "registers", "skip": "serial"}, "held_rows 1 is the simulator's alone; build with all 4"),
        ({"sram_cycles": 2}, "sram_cycles 2 must be at least 3"),
        ({"hop_cycles": 3}, "with hop_cycles 3 results of two clusters meet"),
    ],
)
def test_a_shape_that_cannot_be_built_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(RtlError, match=message):
        FabricSizes(replace(SMALL, **change))


def test_the_shape_of_acf_512_can_be_built() -> None:
    assert FabricSizes(acf.sim.spec("acf-512")).ports == 1
