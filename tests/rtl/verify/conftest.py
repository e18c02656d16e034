"""Fabrics that are compiled once for all tests."""

from dataclasses import replace

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

import acf.sim
from acf.rtl.design.fabric.shapes import SMALL_SHAPE
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.tools.verilator import VerilatorUnavailableError
from acf.rtl.verify.lockstep.fabric_simulation import FabricSimulation
from tests.rtl.verify.tiny_cluster import TINY_CLUSTER

TWELVE_SCUS = acf.sim.spec(
    "acf-512",
    mesh_rows=2,
    mesh_columns=3,
    scus_per_cluster=2,
    tile=8,
    link_bytes=16,
    queue_packets=4,
    parallel_slots=8,
    accumulator_tiles=4,
    sum_adders=2,
    prefetch_packets=8,
)

CSC_SCU = replace(SMALL_SHAPE, mesh_rows=1, mesh_columns=1, tile=16, link_bytes=32, tile_format="csc")

GATED_UNITS = acf.sim.spec(
    "acf-512-lean",
    **TINY_CLUSTER | {"mesh_rows": 2, "mesh_columns": 2},
    scus_per_cluster=2,
    lanes=4,
    held_rows=4,
    link_bytes=16,
)

HOLDING_SCU = acf.sim.spec("acf-512-lean", **TINY_CLUSTER, scus_per_cluster=1, lanes=8, held_rows=8, link_bytes=32)


def compiled(sizes: FabricSizes) -> FabricSimulation:
    try:
        return FabricSimulation.of(sizes, "verilator", "-O0")
    except VerilatorUnavailableError as error:
        pytest.skip(f"no compiled model: {error}")


@pytest.fixture(scope="session")
def four_scus() -> FabricSimulation:
    return compiled(FabricSizes(SMALL_SHAPE, command_depth=64, memory_flits=256))


@pytest.fixture(scope="session")
def csc_scu() -> FabricSimulation:
    return compiled(FabricSizes(CSC_SCU, command_depth=128, memory_flits=256))


@pytest.fixture(scope="session")
def twelve_scus() -> FabricSimulation:
    return compiled(FabricSizes(TWELVE_SCUS, command_depth=256, memory_flits=1024))


@pytest.fixture(scope="session")
def gated_units() -> FabricSimulation:
    return compiled(FabricSizes(GATED_UNITS, command_depth=64, memory_flits=512))


@pytest.fixture(scope="session")
def holding_scu() -> FabricSimulation:
    return compiled(FabricSizes(HOLDING_SCU, command_depth=64, memory_flits=512))
