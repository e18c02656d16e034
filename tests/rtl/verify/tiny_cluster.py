"""Fields of a fabric of one cluster, as small as one can be built."""

from typing import Any

TINY_CLUSTER: dict[str, Any] = {
    "mesh_rows": 1,
    "mesh_columns": 1,
    "tile": 8,
    "queue_packets": 2,
    "parallel_slots": 4,
    "accumulator_tiles": 2,
    "prefetch_packets": 2,
}
