"""Fabrics that are compiled once for all tests."""

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

import acf.sim
from acf.rtl.fabric.sizes import FabricSizes
from acf.rtl.flow.verilator import VerilatorUnavailableError
from acf.rtl.lockstep.fabric import FabricSimulation

FOUR_UNITS = acf.sim.spec(
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
SIXTY_FOUR_UNITS = acf.sim.spec(
    "acf-512",
    mesh_rows=2,
    mesh_columns=4,
    scus_per_cluster=8,
    tile=8,
    link_bytes=16,
    queue_packets=4,
    parallel_slots=8,
    accumulator_tiles=4,
    sum_adders=2,
    prefetch_packets=8,
)


def compiled(sizes: FabricSizes) -> FabricSimulation:
    try:
        return FabricSimulation.of(sizes, "verilator", "-O0")
    except VerilatorUnavailableError as error:
        pytest.skip(f"no compiled model: {error}")


@pytest.fixture(scope="session")
def four_units() -> FabricSimulation:
    return compiled(FabricSizes(FOUR_UNITS, command_depth=64, memory_flits=256))


@pytest.fixture(scope="session")
def sixty_four_units() -> FabricSimulation:
    return compiled(FabricSizes(SIXTY_FOUR_UNITS, command_depth=256, memory_flits=1024))
