"""The shape of a fabric: what cannot be built is refused where it is described."""

import pytest

from acf.errors import ArchitectureError
from tests.lowering.random_products import fabric


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tile": 12}, "tile 12 is not one of 8, 16, 32"),
        ({"lanes": 3}, "lanes 3 must divide the tile 16"),
        ({"mesh_rows": 65}, "side above 64"),
        ({"queue_packets": 0}, "queue_packets 0 must be at least 1"),
        ({"skip": "maybe"}, "skip 'maybe' is not one of both, serial, gate"),
        ({"accumulator_tiles": 33, "parallel_slots": 64}, "accumulator_tiles 33 exceeds 32"),
        ({"link_bytes": 4097}, "link_bytes 4097 exceeds 4096, the longest payload of a packet; use fewer"),
        ({"parallel_slots": 8}, "parallel_slots 8 must be at least accumulator_tiles 16"),
    ],
)
def test_a_shape_that_cannot_be_built_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        fabric(**changes)
