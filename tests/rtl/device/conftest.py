"""The tests inside the simulator are run by it alone; a device with a vector unit is built once for all tests of it."""

import pytest

from acf.rtl.device.host.simulation import DeviceSimulation
from tests.rtl.conftest import skip_without_verilator
from tests.rtl.device.programs import VECTOR_AXI, VECTOR_SIZES, VECTOR_WALKER

collect_ignore = ["bus_bench.py"]


@pytest.fixture(scope="session")
def vector_device() -> DeviceSimulation:
    """One SCU, a walker and a vector unit, with 256 KiB of memory; Amaranth's simulator would take minutes."""
    skip_without_verilator()
    return DeviceSimulation.of(VECTOR_SIZES, VECTOR_AXI, 1 << 15, 5, "verilator", VECTOR_WALKER, vector="transformer")
