"""Shapes of fabrics to build: those of named architectures and TOML files, and a small one for quick runs."""

from acf.errors import RtlError
from acf.lowering import FabricShape
from acf.sim.fabric import AdaptiveFabric
from acf.sim.registry import find_architecture, spec_of_kind

SMALL_SHAPE: FabricShape = spec_of_kind(
    AdaptiveFabric,
    "acf-512",
    mesh_rows=2,
    mesh_columns=2,
    scus_per_cluster=1,
    tile=8,
    link_bytes=16,
    queue_packets=3,
    parallel_slots=6,
    accumulator_tiles=4,
    prefetch_packets=4,
)
"""4 SCUs with shallow queues, so that every kind of stall occurs in short programs."""


def find_fabric(name: str) -> AdaptiveFabric:
    """The fabric of an architecture's name or TOML file; refuses other kinds of machines."""
    _, spec = find_architecture(name)
    if not isinstance(spec, AdaptiveFabric):
        raise RtlError(f"{name} is no fabric; name one of kind fabric")
    return spec


def find_shape(name: str | None) -> FabricShape:
    """As `find_fabric`; the small shape where no name is given."""
    return SMALL_SHAPE if name is None else find_fabric(name)
